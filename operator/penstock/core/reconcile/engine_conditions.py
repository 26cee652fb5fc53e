"""Computes the conditions on a service's engines: WorkloadReady and TrafficAvailable."""

from collections.abc import Iterable

from penstock.core.formats.conditions import find_condition
from penstock.core.observed.children import ObservedState
from penstock.core.observed.fetches import describe_fetches
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.retry_advice import POD_RETRY
from penstock.core.reconcile.condition_types import (
    ENGINE_LOST,
    FETCHING,
    SCALED_TO_ZERO,
    WAKING,
    Condition,
    Truth,
)
from penstock.core.reconcile.missing_objects import with_advice
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.service import Object, ServiceSpec


def workload_ready(
    spec: ServiceSpec, observed: ObservedState, revision: str, total: int | None
) -> Condition:
    """The condition WorkloadReady of a revision. total: replicas for all of the traffic; None: not known."""

    def condition(status: Truth, reason: str, message: str) -> Condition:
        return Condition("WorkloadReady", status, reason, message)

    if revision in observed.refusals:
        return condition("False", *observed.refusals[revision])
    if is_without_replicas(spec):
        return condition("True", SCALED_TO_ZERO, "spec.replicas is 0: no engine is wanted")
    if _is_at_zero(spec, total):
        return condition("True", SCALED_TO_ZERO, "no request comes: no engine is wanted")
    if observed.deployment(revision) is None:
        return condition("False", "NoEngines", f"revision {revision} has no engines yet")
    num_ready, wanted = observed.ready(revision), observed.replicas(revision)
    if num_ready >= min(wanted, spec.scaling.min_replicas) and num_ready > 0:
        return condition("True", "EnginesReady", f"revision {revision} has the engines it needs")
    count = f"{num_ready} of {wanted} engines are ready"
    trouble = _trouble(observed, revision)
    if trouble is None:
        serving = observed.serving(revision)
        fetching = describe_fetches({pod.name: pod.fetches for pod in serving if pod.fetches})
        if fetching:
            return condition("False", FETCHING, f"{count}; {fetching}")
        return condition("False", "Progressing", count)
    reason, message = trouble
    return condition("False", reason, f"{count}; {message}" if num_ready else message)


def _trouble(observed: ObservedState, revision: str) -> tuple[str, str] | None:
    """(reason, message) of what keeps engines from becoming ready; None if nothing is known to.

    The first failing pod by name precedes a Deployment that cannot make pods, and both an engine that was
    lost: its successor may have a trouble of its own.
    """
    for pod in sorted(observed.serving(revision), key=_by_name):
        if pod.trouble is not None and not pod.is_ready:
            reason, message = with_advice(pod.trouble)
            is_refused = pod.fetches is not None and pod.fetches.is_final
            return reason, f"{message}; {POD_RETRY}" if is_refused else message
    for each in observed.deployments_of(revision).values():
        if each.trouble is not None:
            return each.trouble
    for pod in observed.ended_engines():
        if pod.revision == revision and pod.lost:
            return ENGINE_LOST, f"{pod.name} was lost and is replaced: {pod.lost}"
    return None


def _by_name(pod: ObservedPod) -> str:
    return pod.name


def is_without_replicas(spec: ServiceSpec) -> bool:
    """Whether the spec itself asks for no replica, so that no request starts one."""
    return spec.scaling.mode == "External" and spec.external_replicas == 0


def _is_at_zero(spec: ServiceSpec, total: int | None) -> bool:
    """Whether the service has no replica until a request comes."""
    return wakes_on_request(spec) and total == 0


def wakes_on_request(spec: ServiceSpec) -> bool:
    """Whether a request starts the first engine of the service."""
    return spec.scaling.mode == "Active" and not spec.scaling.min_replicas


def zero_reason(status: Object) -> str:
    """ScaledToZero or Waking if the status says that requests wait for a first engine; else empty."""
    reason = find_condition(status, "TrafficAvailable", "True").get("reason")
    return reason if reason in (SCALED_TO_ZERO, WAKING) else ""


def traffic_available(
    spec: ServiceSpec, observed: ObservedState, shares: Iterable[Share], total: int | None
) -> Condition:
    """The condition TrafficAvailable. shares: of the traffic. total: as of `workload_ready`."""
    revisions = sorted({share.side.revision for share in shares})
    if not revisions:
        return Condition("TrafficAvailable", "False", "NoRevision", "no revision can serve yet")
    is_one, named = len(revisions) == 1, " and ".join(revisions)
    named = f"revision {named}" if is_one else f"revisions {named}"
    if any(observed.ready(revision) for revision in revisions):
        verb = "receives" if is_one else "receive"
        return Condition("TrafficAvailable", "True", "Serving", f"{named} {verb} traffic")
    if is_without_replicas(spec):
        message = "spec.replicas is 0: no engine answers requests"
        return Condition("TrafficAvailable", "False", SCALED_TO_ZERO, message)
    if _is_at_zero(spec, total):
        message = "no engine runs until a request comes, which waits for it"
        return Condition("TrafficAvailable", "True", SCALED_TO_ZERO, message)
    if wakes_on_request(spec) and not any(_trouble(observed, each) for each in revisions):
        message = f"an engine of {named} starts, and requests wait for it"
        return Condition("TrafficAvailable", "True", WAKING, message)
    message = f"no engine of {named} is ready"
    return Condition("TrafficAvailable", "False", "NoEngineReady", message)
