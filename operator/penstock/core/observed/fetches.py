"""State of the containers of a pod that fetch its models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.formats.json_text import parse_json
from penstock.core.formats.json_values import as_number, as_object, as_text
from penstock.core.runtimes.pod_models import FETCH_CONTAINERS
from penstock.core.spec.service import Object
from penstock_engine.contract.fetch_output import FAILED_FOR_NOW, SUCCEEDED, progress_text


@dataclass(frozen=True, slots=True)
class FetchReport:
    """Report of a container that fetched a model, at its end."""

    container: str
    ok: bool
    ended_at: str  # RFC 3339
    reason: str = ""  # of a failure, as the message
    message: str = ""
    downloaded_bytes: int = 0
    seconds: float = 0.0
    num_cache_hits: int = 0  # files that were in the cache already
    resolved_uri: str = ""  # what the URI meant; empty if it is unknown


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """Progress of a fetch. bytes_per_s: over the last seconds; 0 if no byte was received."""

    done_bytes: int
    total_bytes: int
    bytes_per_s: float

    def __str__(self) -> str:
        return progress_text(self.done_bytes, self.total_bytes, self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class PodFetches:
    """The fetches of a pod's models, one after the other."""

    running: str | None = None  # the container that fetches now
    since: str = ""  # RFC 3339 time at which it started
    ended_at: str = ""  # time at which the last of those that succeeded ended
    # (reason, message) of the last run of a container that has to be repeated
    failure: tuple[str, str] | None = None
    is_final: bool = False  # whether it fails again until something is changed
    restarts: int = 0  # of the container that failed
    reports: tuple[FetchReport, ...] = ()  # of all runs that have ended, also the failed ones
    progress: FetchProgress | None = None  # of the fetch that runs, if it is known

    @property
    def total_s(self) -> float:
        """Time that the fetches took which succeeded."""
        return sum(report.seconds for report in self.reports if report.ok)

    @property
    def has_started(self) -> bool:
        """Whether a container has run."""
        return self.running is not None or bool(self.reports)


def fetches_of(statuses: Iterable[Object]) -> PodFetches | None:
    """The fetches of a pod; None if it fetches no model. statuses: of its init containers."""
    own = [each for each in statuses if each["name"] in FETCH_CONTAINERS.values()]
    if not own:
        return None
    found = [_of_container(each) for each in own]
    return PodFetches(
        running=next((each.running for each in found if each.running), None),
        since=next((each.since for each in found if each.running), ""),
        ended_at=max(each.ended_at for each in found),
        failure=next((each.failure for each in found if each.failure), None),
        is_final=any(each.is_final for each in found),
        restarts=max(each.restarts for each in found),
        reports=tuple(report for each in found for report in each.reports),
    )


def _of_container(status: Object) -> PodFetches:
    name, state = status["name"], status.get("state", {})
    last = status.get("lastState", {}).get("terminated")
    if ended := state.get("terminated"):
        report = report_of(name, ended)
        if report.ok:
            return PodFetches(ended_at=ended.get("finishedAt") or "", reports=(report,))
        return _failed(report, ended, status)
    if (running := state.get("running")) is not None:
        return PodFetches(running=name, since=running.get("startedAt") or "")
    if last is not None:
        return _failed(report_of(name, last), last, status)
    waiting = state.get("waiting", {})
    reason = waiting.get("reason")
    if reason in (None, "PodInitializing", "ContainerCreating"):
        return PodFetches()
    reason = "ErrImagePull" if reason == "ImagePullBackOff" else reason
    return PodFetches(failure=(reason, waiting.get("message", "")))


def _failed(report: FetchReport, ended: Object, status: Object) -> PodFetches:
    is_final = ended.get("exitCode") != FAILED_FOR_NOW
    message = report.message if is_final else f"{report.message}; the fetch is tried again"
    return PodFetches(
        failure=(report.reason, message),
        is_final=is_final,
        restarts=status.get("restartCount", 0),
        reports=(report,),
    )


def report_of(container: str, ended: Object) -> FetchReport:
    """The report of a run. Without one, such as after a kill, its reason is that of Kubernetes.

    The container may be anybody's: its exit code says whether it succeeded, not its report.
    """
    text, at = ended.get("message") or "", ended.get("finishedAt") or ""
    is_success = ended.get("exitCode") == SUCCEEDED
    try:
        found = as_object(parse_json(text))
        if is_success:
            return _success(container, at, found)
        return FetchReport(
            container, False, at, as_text(found["reason"]), as_text(found["message"])
        )
    except (ValueError, KeyError):
        if is_success:
            return FetchReport(container, True, at)
        reason = ended.get("reason") or "Error"
        return FetchReport(
            container, False, at, reason, text[-500:] or f"{container} ended: {reason}"
        )


def _success(container: str, at: str, found: dict[str, Any]) -> FetchReport:
    """The report of a run that succeeded. Raises ValueError, KeyError."""
    return FetchReport(
        container,
        True,
        at,
        downloaded_bytes=int(as_number(found["downloaded_bytes"])),
        seconds=as_number(found["seconds"]),
        num_cache_hits=int(as_number(found["num_cache_hits"])),
        resolved_uri=as_text(found.get("resolved_uri", "")),
    )


def describe_fetches(fetches: Mapping[str, PodFetches]) -> str:
    """The fetches that run, in words; empty if none does. fetches: by the name of the pod."""
    running = sorted(name for name, each in fetches.items() if each.running)
    if not running:
        return ""
    # The engines are ready last in the pod that has most bytes left.
    name = max(running, key=lambda pod: _left_bytes(fetches[pod]))
    known = fetches[name].progress
    text = f"{name} fetches its model" + (f": {known}" if known else "")
    others = len(running) - 1
    return (
        f"{text}; {others} more {'pod fetches' if others == 1 else 'pods fetch'} it"
        if others
        else text
    )


def _left_bytes(fetches: PodFetches) -> int:
    known = fetches.progress
    return known.total_bytes - known.done_bytes if known else 0
