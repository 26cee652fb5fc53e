"""State of the pods that fetch adapters."""

from dataclasses import dataclass

from penstock.core.observed.fetches import FetchReport, report_of
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import ENGINE_CONTAINER, Object
from penstock_engine.contract.fetch_output import FAILED


@dataclass(frozen=True, slots=True)
class AdapterFetchPod:
    """A pod that fetches an adapter. report: None while it has not ended.

    is_final: whether it failed, and fails again until something is changed. After other exit codes, such as
    of a kill, the same fetch may succeed.
    """

    pod: ObservedPod
    report: FetchReport | None = None
    is_final: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended, also without a report."""
        return self.pod.is_over or self.report is not None

    @classmethod
    def of(cls, body: Object) -> "AdapterFetchPod":
        """Read a pod of the API server."""
        pod = ObservedPod.of(body)
        statuses = body.get("status", {}).get("containerStatuses") or ()
        own: Object = next((each for each in statuses if each["name"] == ENGINE_CONTAINER), {})
        ended = own.get("state", {}).get("terminated")
        if ended is None or pod.lost:
            return cls(pod)
        report = report_of("the fetch", ended)
        return cls(pod, report, is_final=not report.ok and ended.get("exitCode") == FAILED)
