"""Renders the status of a service that is being deleted, while a finalizer keeps the object."""

from dataclasses import replace

from penstock.core.formats.conditions import conditions_by_type
from penstock.core.observed.children import ObservedState
from penstock.core.reconcile.condition_types import Condition
from penstock.core.reconcile.engine_conditions import traffic_available
from penstock.core.reconcile.status import as_objects, replica_counts
from penstock.core.spec.service import Object, ServiceSpec

TERMINATING = "Terminating"


def render_terminating(
    spec: ServiceSpec, observed: ObservedState, body: Object, previous: Object, now: str
) -> Object:
    """The fields of the status that still change: numbers of pods, and conditions about them.

    Nothing is reconciled any more, so pods that end are not replaced. body: the service. previous: its
    status so far. now: RFC 3339.
    """
    held = ", ".join(body["metadata"].get("finalizers", []))
    message = f"the service is being deleted; finalizers that keep it: {held}"
    # No request starts an engine any more.
    kept_up = replace(spec, scaling=replace(spec.scaling, min_replicas=1))
    traffic = traffic_available(kept_up, observed, observed.traffic, observed.stored_total)
    ready = Condition("Ready", "False", TERMINATING, message)
    if traffic.status == "True":
        ready = Condition("Ready", "True", "Ready", "the service answers requests")
    current = (
        traffic,
        Condition("Reconciling", "True", TERMINATING, message),
        Condition("Stalled", "False", "NotStalled", "no change of the spec is required"),
        ready,
    )
    kept = conditions_by_type(previous)
    changed = {each["type"]: each for each in as_objects(current, previous, spec.generation, now)}
    return {**replica_counts(observed), "conditions": list((kept | changed).values())}
