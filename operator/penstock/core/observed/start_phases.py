"""Phases of the start of an engine pod, by the times in its status, which are whole seconds."""

from dataclasses import dataclass

from penstock.core.formats.conditions import conditions_by_type
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.fetches import fetches_of
from penstock.core.runtimes.pod_models import FETCH_CONTAINERS
from penstock.core.spec.service import ENGINE_CONTAINER, Object


@dataclass(frozen=True, slots=True)
class StartPhases:
    """Durations of the phases of a pod's start, in seconds."""

    pod: str
    ready_at_s: float  # Unix time
    scheduling_s: float  # until a node had it
    preparing_s: float  # volumes and images
    fetch_s: float  # of its models; 0 if none is fetched
    loading_s: float  # from the start of the engine until it was ready
    downloaded_bytes: int  # 0 if the models were in a cache

    @property
    def total_s(self) -> float:
        return self.scheduling_s + self.preparing_s + self.fetch_s + self.loading_s


def start_phases(pod: Object) -> StartPhases | None:
    """The phases of a pod's start; None if it is not ready, or its engine has started more than once."""
    status = pod.get("status", {})
    conditions = conditions_by_type(status)
    ready, scheduled = (conditions.get(name, {}) for name in ("Ready", "PodScheduled"))
    engine = _engine(status)
    started_at = engine.get("state", {}).get("running", {}).get("startedAt")
    if ready.get("status") != "True" or not started_at or engine.get("restartCount"):
        return None
    created_s = parse_timestamp(pod["metadata"]["creationTimestamp"])
    ready_s, started_s = parse_timestamp(ready["lastTransitionTime"]), parse_timestamp(started_at)
    scheduled_at = scheduled.get("lastTransitionTime")
    scheduled_s = parse_timestamp(scheduled_at) if scheduled_at else created_s
    fetch_s = _fetch_s(status)
    fetches = fetches_of(status.get("initContainerStatuses", ()))
    return StartPhases(
        pod["metadata"]["name"],
        ready_s,
        scheduling_s=scheduled_s - created_s,
        preparing_s=started_s - scheduled_s - fetch_s,
        fetch_s=fetch_s,
        loading_s=ready_s - started_s,
        downloaded_bytes=sum(each.downloaded_bytes for each in fetches.reports) if fetches else 0,
    )


def _engine(status: Object) -> Object:
    containers = status.get("containerStatuses", ())
    return next((each for each in containers if each["name"] == ENGINE_CONTAINER), {})


def _fetch_s(status: Object) -> float:
    """Time in which the last runs of the containers that fetch ran."""
    ended = [
        each.get("state", {}).get("terminated", {})
        for each in status.get("initContainerStatuses", ())
        if each["name"] in FETCH_CONTAINERS.values()
    ]
    return sum(
        parse_timestamp(each["finishedAt"]) - parse_timestamp(each["startedAt"])
        for each in ended
        if each.get("startedAt") and each.get("finishedAt")
    )
