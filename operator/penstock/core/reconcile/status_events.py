"""Events for changes of a service's status."""

from collections.abc import Iterator

from penstock.core.formats.conditions import conditions_by_type
from penstock.core.observed.pods import OOM_KILLED
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.reconcile.condition_types import ENGINE_LOST, FETCHING
from penstock.core.spec.service import Object

# Reasons of engines that ended, of which a person should know also if others answer.
ENDED = (OOM_KILLED, ENGINE_LOST)
# Reasons for which a service does not answer requests while it starts; nobody has to act.
STARTING_UP = (
    "PreflightPending", "PreflightRunning", "PreflightLost", "NoEngines", "Progressing", "NoRevision",
    FETCHING,
)  # fmt: skip


def new_events(before: Object, after: Object, revision: str | None) -> list[tuple[str, str, str]]:
    """Events for a change of the status, each as (Normal or Warning, reason, message).

    A Warning asks a person to act. revision: the spec's; None if the spec is invalid.
    """
    old, new = conditions_by_type(before), conditions_by_type(after)
    found = [*_of_stalling(old, new), *_of_readiness(old, new), *_of_engines(old, new)]
    found += _of_fetches(old, new)
    found += rollout_events(before.get("rollout") or {}, after.get("rollout") or {}, revision)
    found += _of_scaling(before.get("scaling") or {}, after.get("scaling") or {})
    return found


def _is_changed(kind: str, old: Object, new: Object) -> bool:
    """Whether the status or the reason of this condition changed."""
    now, was = new.get(kind, {}), old.get(kind, {})
    return (now.get("status"), now.get("reason")) != (was.get("status"), was.get("reason"))


def _of_stalling(old: Object, new: Object) -> Iterator[tuple[str, str, str]]:
    stalled = new.get("Stalled", {})
    # A rejection has an Event of the rollout.
    is_reported = stalled.get("reason") == "Rejected"
    if stalled.get("status") == "True" and not is_reported and _is_changed("Stalled", old, new):
        yield "Warning", stalled["reason"], stalled["message"]


def _of_readiness(old: Object, new: Object) -> Iterator[tuple[str, str, str]]:
    ready, stalled = new.get("Ready"), new.get("Stalled", {})
    if ready is None or not _is_changed("Ready", old, new):
        return
    if stalled.get("status") == "True" and stalled["reason"] == ready["reason"]:
        return
    is_rolling = new.get("Reconciling", {}).get("status") == "True"
    is_well = ready["status"] == "True" or (is_rolling and ready["reason"] in STARTING_UP)
    yield "Normal" if is_well else "Warning", ready["reason"], ready["message"]


def _of_engines(old: Object, new: Object) -> Iterator[tuple[str, str, str]]:
    """Events of engines that ended while others answer requests."""
    workload = new.get("WorkloadReady", {})
    if workload.get("reason") not in ENDED or not _is_changed("WorkloadReady", old, new):
        return
    if workload["reason"] != new.get("Ready", {}).get("reason"):
        yield "Warning", workload["reason"], workload["message"]


def _of_fetches(old: Object, new: Object) -> Iterator[tuple[str, str, str]]:
    """Events of the begin and the end of fetches of the model, while engines wait for it."""
    was, now = (each.get("WorkloadReady", {}) for each in (old, new))
    is_readiness = new.get("Ready", {}).get("reason") == FETCHING
    if now.get("reason") == FETCHING != was.get("reason") and not is_readiness:
        yield "Normal", FETCHING, now["message"]
    if was.get("reason") == FETCHING and now.get("reason") in ("Progressing", "EnginesReady"):
        yield "Normal", "Fetched", "the pods have fetched the model"


def _of_scaling(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    number = after.get("desiredReplicas")
    previous = before.get("desiredReplicas", number)
    if number != previous and number is not None:
        reason = "ScaledUp" if number > previous else "ScaledDown"
        yield "Normal", reason, f"{previous} -> {number} replicas: {after['message']}"


def rollout_events(
    before: Object, after: Object, revision: str | None
) -> list[tuple[str, str, str]]:
    """Events for a change of `status.rollout`. revision: the spec's."""
    phase = after.get("phase")
    # The first revision of a service starts, and that of an adapter serves at once.
    is_begin = not before and phase in ("Starting", "Stable")
    if phase in (None, before.get("phase")) or is_begin:
        return []
    rejected = after.get("rejected") or {}
    # A rollback of a revision that the spec no longer has is normal.
    is_wrong = PHASES[phase].warns and rejected.get("revision") == revision
    kind = "Warning" if is_wrong else "Normal"
    text = (
        f"revision {rejected['revision']}: {rejected['message']}" if rejected else after["message"]
    )
    return [(kind, f"Rollout{phase}", text)]
