"""Computes the conditions of a service whose spec is refused, if no earlier one is known to go on with."""

from collections.abc import Collection

from penstock.core.observed.children import ObservedState
from penstock.core.reconcile.condition_types import (
    CONDITIONAL_TYPES,
    SCALED_TO_ZERO,
    Condition,
)
from penstock.core.reconcile.conditions import model_ready
from penstock.core.reconcile.engine_conditions import traffic_available, workload_ready
from penstock.core.reconcile.name_conflict import name_conflict
from penstock.core.reconcile.summary_conditions import SEE_STALLED, STALLED, answering
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.service import ServiceSpec


def refused_conditions(
    refusal: Refusal, spec: ServiceSpec, observed: ObservedState, known: Collection[str] = ()
) -> tuple[Condition, ...]:
    """All conditions in the order of TYPES.

    spec: as far as it could be read. known: types of the conditions that the service has; none of them is
    removed, apart from ModelNameConflict. ModelReady and WorkloadReady are about the revision that was rolled
    out last.
    """
    reason, text = refusal.reason, _consequence(refusal)
    traffic = traffic_available(spec, observed, observed.traffic, observed.stored_total)
    found = [
        Condition("SpecValid", "False", reason, refusal.message),
        *_revision_conditions(refusal, spec, observed),
        traffic,
        Condition("RolledOut", "False", reason, text),
        Condition("MetricsReadable", "Unknown", reason, text),
        Condition(
            "ScalingActive", "False", reason, f"{text}: the number of replicas stays as it is"
        ),
        Condition("ObjectivesAttainable", "Unknown", reason, text),
        Condition("Reconciling", "False", STALLED, SEE_STALLED),
        Condition("Stalled", "True", reason, refusal.message),
        _ready(refusal, observed, traffic),
    ]
    found = [each for each in found if each.type not in CONDITIONAL_TYPES or each.type in known]
    return *found, *name_conflict(observed.name_conflict)


def _consequence(refusal: Refusal) -> str:
    return f"{refusal.problem}, so the operator changes nothing of the service"


def _revision_conditions(
    refusal: Refusal, spec: ServiceSpec, observed: ObservedState
) -> tuple[Condition, Condition]:
    rollout = observed.rollout
    revision = rollout and (rollout.revision or rollout.stable)
    if not revision:
        model, workload = (
            Condition(name, "Unknown", refusal.reason, _consequence(refusal))
            for name in ("ModelReady", "WorkloadReady")
        )
        return model, workload
    workload = workload_ready(spec, observed, revision, observed.stored_total)
    return model_ready(observed, revision), workload


def _ready(refusal: Refusal, observed: ObservedState, traffic: Condition) -> Condition:
    """Whether requests are answered. If not, the refusal is the reason: a user has to change the spec."""
    if traffic.reason == SCALED_TO_ZERO or (
        observed.name_taken_by is None and traffic.status == "True"
    ):
        return answering(traffic)
    return Condition("Ready", "False", refusal.reason, refusal.message)
