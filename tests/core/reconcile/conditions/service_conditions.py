"""Services in tests of conditions, and one condition of their status."""

from dataclasses import replace

from tests.core.reconcile.conditions.observed_engines import OLD
from tests.support.specs.service_spec import SMALL, service_spec

from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import Object, ServiceSpec

NEW = "b" * 8
SPEC = service_spec(scaling=replace(SMALL.scaling, min_replicas=2))
EXTERNAL = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"))
NO_REPLICAS = replace(EXTERNAL, external_replicas=0)
SETTLED = RolloutState("Canary", "Stable", 0.0, "because", OLD, None, 1)
JUDGED = replace(SETTLED, phase="Judging", revision=NEW)
EMPTY = ObservedState()
STABLE_SHARE = Share(Side(OLD), 100)
PASSED = '{"ok": true, "architecture": "Q", "weights_bytes": 3145727, "kv_capacity_tokens": 9}'
REPORT = ScalingReport(2, "because", "Active", True, "2026-01-01T00:00:00Z", ())


def condition_of(
    kind: str,
    observed: ObservedState = EMPTY,
    *,
    spec: ServiceSpec = SPEC,
    rollout: RolloutState = SETTLED,
    shares: tuple[Share, ...] = (STABLE_SHARE,),
    wanted: str = OLD,
    waiting_for: str = "",
    scaling: ScalingReport | None = None,
    gates: tuple[Object, ...] = (),
) -> tuple[str, str, str]:
    planned = Plan(wanted, rollout, shares, waiting_for=waiting_for)
    [found] = [c for c in conditions(spec, observed, planned, scaling, gates) if c.type == kind]
    return found.status, found.reason, found.message


WRONG = replace(SETTLED, phase="Rejected", rejected=Rejection(NEW, "too slow", ""))
