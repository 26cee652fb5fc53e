"""Conditions and Events of a service that has no engine until a request comes, and of one that wakes."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.conditions.observed_engines import OLD, deployment, observed_with, pod
from tests.core.reconcile.conditions.service_conditions import SETTLED, SPEC, STABLE_SHARE

from penstock.core.observed.children import ObservedState
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.reconcile.refused_conditions import refused_conditions
from penstock.core.reconcile.status_events import new_events
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.service import ServiceSpec

WAKES = replace(SPEC, scaling=replace(SPEC.scaling, min_replicas=0))
DRY_RUN = replace(WAKES, scaling=replace(WAKES.scaling, mode="DryRun"))


def said(spec: ServiceSpec, observed: ObservedState, total: int) -> dict[str, tuple[str, str]]:
    found = conditions(spec, observed, Plan(OLD, SETTLED, (STABLE_SHARE,), total=total), None)
    return {each.type: (each.status, each.reason) for each in found}


AT_ZERO = {
    "WorkloadReady": ("True", "ScaledToZero"),
    "TrafficAvailable": ("True", "ScaledToZero"),
    "Ready": ("True", "ScaledToZero"),
    "Reconciling": ("False", "Settled"),
    "Stalled": ("False", "NotStalled"),
}
WAKING = {
    "WorkloadReady": ("False", "Progressing"),
    "TrafficAvailable": ("True", "Waking"),
    "Ready": ("True", "Waking"),
    "Reconciling": ("False", "Settled"),
}
BROKEN = {"TrafficAvailable": ("False", "NoEngineReady"), "Ready": ("False", "Unschedulable")}
TROUBLED = replace(pod(ready=False), trouble=("Unschedulable", "no node has room"))


@pytest.mark.parametrize(
    ("spec", "observed", "total", "expected"),
    [
        (WAKES, observed_with(deployment(0)), 0, AT_ZERO),
        (WAKES, observed_with(deployment(1)), 1, WAKING),
        (WAKES, observed_with(deployment(1), pod(ready=False)), 1, WAKING),
        # A wake-up that cannot be scheduled is no service that answers.
        (WAKES, observed_with(deployment(1), TROUBLED), 1, BROKEN),
        (WAKES, observed_with(deployment(1), pod()), 1, {"Ready": ("True", "Ready")}),
        (DRY_RUN, observed_with(deployment(1)), 1, {"Ready": ("False", "Progressing")}),
    ],
)
def test_conditions_at_zero_and_after(
    spec: ServiceSpec, observed: ObservedState, total: int, expected: dict[str, tuple[str, str]]
) -> None:
    assert expected.items() <= said(spec, observed, total).items()


def test_a_refused_spec_leaves_a_service_at_zero_ready() -> None:
    refusal = Refusal("InvalidSpec", "spec.engine: no")
    observed = replace(observed_with(deployment(0)), traffic=(STABLE_SHARE,), stored_total=0)
    found = {each.type: each for each in refused_conditions(refusal, WAKES, observed)}
    assert (found["Ready"].status, found["Ready"].reason) == ("True", "ScaledToZero")


def status(reason: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": reason, "message": f"it is {reason}"}
    return {"conditions": [ready]}


@pytest.mark.parametrize(
    ("before", "after"),
    [("Ready", "ScaledToZero"), ("ScaledToZero", "Waking"), ("Waking", "Ready")],
)
def test_each_step_to_zero_and_back_has_a_normal_event(before: str, after: str) -> None:
    assert new_events(status(before), status(after), OLD) == [("Normal", after, f"it is {after}")]
