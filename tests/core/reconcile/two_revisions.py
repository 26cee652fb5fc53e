"""A service with a stable and a new revision, as a planner observes it."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.support.specs.preflight_messages import PASSED
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.manifests import engine as manifests
from penstock.core.observed.children import ObservedDeployment, ObservedJob, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import Phase
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.reconcile.plan import Plan, PlanInputs, plan
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import RolloutSpec, Strategy
from penstock.core.spec.service import TEMPLATE_HASH, ServiceSpec, VariantSpec

STABLE_SPEC = service_spec(external_replicas=3, rollout=RolloutSpec(strategy="Canary"))
SPEC = replace(STABLE_SPEC, settings={**STABLE_SPEC.settings, "engine.seed": 1})
OLD, NEW, OTHER = revision_of(STABLE_SPEC), revision_of(SPEC), "c" * 8
VARIANTS = tuple(
    VariantSpec(name, pod_resources("1", "1Gi"), 1.0, 0, 9) for name in ("spot", "plain")
)
NOW_S = 1_800_000_000.0
TO_OLD, TO_NEW = (Share(Side(OLD), 100),), (Share(Side(NEW), 100),)


def pod(revision: str = NEW, name: str = "p", *, ready: bool = True, **rest: Any) -> ObservedPod:
    made = ObservedPod(name, f"u-{name}", revision, "serve", "", ready, False, "Running", None, "")
    return replace(made, **rest)


def preflight(revision: str = NEW, **rest: Any) -> ObservedPod:
    made = pod(revision, f"f-{revision}", ready=False, role="preflight", phase="Succeeded")
    return replace(made, **{"termination_message": PASSED, **rest})


def deployment(
    revision: str = NEW,
    replicas: int = 1,
    *,
    image: str = "image",
    cohort: str = "",
    variant: str = "",
    is_hashed: bool = True,
    is_ending: bool = False,
) -> ObservedDeployment:
    spec = STABLE_SPEC if revision == OLD else SPEC
    pods = manifests.own_pods(spec, revision, image)
    body = deepcopy(manifests.deployment(spec, revision, pods, cohort, variant))
    if not is_hashed:
        del body["metadata"]["annotations"][TEMPLATE_HASH]
    name = body["metadata"]["name"]
    return ObservedDeployment(
        name, f"u-{name}", revision, replicas, 0, is_ending, body, cohort=cohort, variant=variant
    )


def recorded(revision: str, number: int, image: str | None = "image") -> Revision:
    spec = STABLE_SPEC if revision == OLD else SPEC
    pods = image and manifests.own_pods(spec, revision, image)
    return Revision(
        f"chat-{revision}",
        f"u-{revision}",
        revision,
        number,
        spec.recorded_fields,
        pods or None,
        True,
    )


KNOWN = (recorded(OLD, 1), recorded(NEW, 2))


def observed_in(
    *children: Any,
    phase: Phase = "Judging",
    strategy: Strategy = "Canary",
    stable: str | None = OLD,
    revision: str | None = NEW,
    rejected: str = "",
    **rest: Any,
) -> ObservedState:
    why = Rejection(rejected, "too slow", "") if rejected else None
    state = RolloutState(strategy, phase, NOW_S, "because", stable, revision, 4, 5, rejected=why)
    return ObservedState(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        jobs=tuple(c for c in children if isinstance(c, ObservedJob)),
        rollout=state,
        **{"stable_spec": STABLE_SPEC, "history": KNOWN, "traffic": TO_OLD, **rest},
    )


def planned(
    observed: ObservedState, spec: ServiceSpec = SPEC, after_s: float = 1.0, **said: Any
) -> Plan:
    return plan(spec, observed, "image", NOW_S + after_s, PlanInputs(**said))


def names(made: Plan) -> list[str]:
    return [body["metadata"]["name"] for body in made.apply]


SERVES: dict[str, Any] = {
    "phase": "Stable",
    "stable": NEW,
    "revision": None,
    "traffic": TO_NEW,
    "strategy": "Rolling",
}
STARTS: dict[str, Any] = {"phase": "Starting", "strategy": "BlueGreen"}
JOB = ObservedJob("j", "ju", NEW, "Running")
