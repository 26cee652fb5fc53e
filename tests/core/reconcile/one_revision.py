"""A service with one revision, as a planner observes it."""

from dataclasses import replace
from typing import Any

from tests.support.specs.preflight_messages import PASSED
from tests.support.specs.service_spec import SMALL, service_spec

from penstock.core.manifests import engine as manifests
from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import Phase
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import ServiceSpec

SPEC = service_spec(
    uid="u1",
    created_at="2026-01-01T00:00:00Z",
    model_uri="pvc://models/tiny",
    settings=SMALL.settings | {"engine.maxModelLen": 1024},
    scaling=replace(SMALL.scaling, max_replicas=3),
)
REVISION = revision_of(SPEC)
NOW_S = 1_800_000_000.0
FORBIDDEN = ("PodForbidden", "not here")
REFUSED = '{"ok": false, "reason": "ModelNotFound", "message": "no model; set spec.model.uri"}'


def preflight(
    said: str = PASSED, phase: str = "Succeeded", revision: str = REVISION
) -> ObservedPod:
    return ObservedPod(
        f"p-{revision}", "pu", revision, "preflight", "", False, False, phase, None, said
    )


def pod(name: str, revision: str = REVISION, *, ready: bool = True) -> ObservedPod:
    return ObservedPod(
        name, name, revision, "serve", "127.0.0.9", ready, False, "Running", None, ""
    )


def deployment(
    revision: str = REVISION, replicas: int = 1, spec: ServiceSpec = SPEC
) -> ObservedDeployment:
    body = manifests.deployment(spec, revision, manifests.own_pods(spec, revision, "image"))
    return ObservedDeployment(
        f"chat-{revision}", f"d{revision}", revision, replicas, 0, False, body
    )


KNOWN = (
    Revision(
        f"chat-{REVISION}", "r", REVISION, 2, {}, manifests.own_pods(SPEC, REVISION, "image"), True
    ),
    Revision("chat-old", "o", "old", 1, {}),
)


def observed_in(
    *children: ObservedDeployment | ObservedPod,
    phase: Phase = "Starting",
    strategy: Strategy = "Recreate",
    stable: str | None = None,
    told: str | None = None,
    **rest: Any,
) -> ObservedState:
    """Observed state in a phase. told: the revision that gateways route to; the stable one if absent."""
    calm = phase in ("Stable", "Rejected", "Draining")
    revision = None if calm else REVISION
    replicas = max((c.replicas for c in children if isinstance(c, ObservedDeployment)), default=1)
    state = RolloutState(strategy, phase, NOW_S, "because", stable, revision, replicas)
    told = told or stable
    return ObservedState(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        history=KNOWN,
        rollout=state,
        traffic=(Share(Side(told), 100),) if told else (),
        **rest,
    )


SERVING = observed_in(deployment(), preflight(), pod("a"), phase="Stable", stable=REVISION)
