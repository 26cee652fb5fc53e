"""Conditions while a spec is refused and the service goes on with the last one that was accepted."""

from dataclasses import replace

from tests.core.reconcile.conditions.observed_engines import OLD, deployment, observed_with, pod
from tests.support.specs.service_spec import SMALL, service_spec

from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.refusal import Refusal

SPEC = service_spec(scaling=replace(SMALL.scaling, min_replicas=2))
SETTLED = RolloutState("Canary", "Stable", 0.0, "because", OLD, None, 1)
REPORT = ScalingReport(2, "because", "Active", True, "2026-01-01T00:00:00Z", ())
SERVING = Plan(OLD, SETTLED, (Share(Side(OLD), 100),))
REFUSAL = Refusal("UnsupportedByRuntime", "spec.engine: no")


def test_a_refused_spec_waits_while_the_accepted_one_goes_on() -> None:
    observed = observed_with(deployment(2), pod("p"), pod("q"), rollout=SETTLED, refusal=REFUSAL)
    found = {
        each.type: (each.status, each.reason, each.message)
        for each in conditions(SPEC, observed, SERVING, REPORT)
    }
    refused = (REFUSAL.reason, REFUSAL.message)
    assert found["SpecValid"] == ("False", *refused)
    assert found["Stalled"] == ("True", *refused)
    assert found["Reconciling"][:2] == ("False", "Stalled")
    assert found["WorkloadReady"][:2] == ("True", "EnginesReady")
    assert found["ScalingActive"][:2] == ("True", "Active")
    assert found["RolledOut"] == (
        "False",
        "UnsupportedByRuntime",
        "the spec is not allowed, so the service goes on with the last one that was accepted: revision "
        f"{OLD} receives all traffic",
    )
    assert found["Ready"] == ("True", "Ready", "the service answers requests")


def test_an_outage_of_a_refused_service_has_its_own_cause() -> None:
    down = pod("p", ready=False, trouble=("CrashLoopBackOff", "no memory"))
    observed = observed_with(deployment(), down, rollout=SETTLED, refusal=REFUSAL)
    found = {each.type: each for each in conditions(SPEC, observed, SERVING, REPORT)}
    assert found["Ready"].reason == "CrashLoopBackOff"
    taken = replace(observed, pods=(pod(),), name_taken_by="older")
    found = {each.type: each for each in conditions(SPEC, taken, SERVING, REPORT)}
    assert (found["Ready"].status, found["Ready"].reason) == ("False", "ModelNameInUse")
    assert found["Ready"].message.endswith(f"Besides: {REFUSAL.message}")
