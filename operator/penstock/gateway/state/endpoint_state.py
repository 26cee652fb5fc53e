"""Health of each endpoint, as this gateway has seen it."""

from collections.abc import Callable, Iterable

from penstock.core.routing import outliers
from penstock.core.routing.charge import CHARGES, Ending
from penstock.core.routing.outliers import Health
from penstock.core.routing.pick import Endpoint

# A failing endpoint that got no request for this long is taken for deleted, and its state is dropped.
FORGET_AFTER_S = 600.0


class EndpointStates:
    """Health of each endpoint, by the pod "namespace/name".

    Addresses are no keys, as a later pod may get the address of a deleted one. All times are of the
    monotonic clock. ejected: called with each pod that is ejected; not again while its ejection is
    prolonged.
    """

    def __init__(self, ejected: Callable[[str], None] = lambda _: None) -> None:
        self._note_ejected = ejected
        self._health: dict[str, Health] = {}

    def ejected(self, endpoints: Iterable[Endpoint], now: float) -> set[str]:
        """Return the pods among the endpoints that are ejected for consecutive failures."""
        if not self._health:
            return set()
        return outliers.ejected((e.pod for e in endpoints), self._health, now)

    @property
    def suspects(self) -> set[str]:
        """Pods that failed a request and have answered none since; a retry avoids them if it can."""
        return set(self._health)

    def note_selected(self, pod: str, now: float) -> None:
        """Record that a request goes to the pod; if the endpoint is failing, the request is its probe."""
        health = self._health.get(pod)
        if health is not None and health.is_failing:
            self._health[pod] = health.while_probed(now)

    def note_response_start(self, pod: str) -> None:
        """Record that a response without an error began.

        It clears the pod's failures, unless responses of it broke off: then only a complete one does.
        """
        health = self._health.get(pod)
        if health is not None and not health.has_broken_off:
            del self._health[pod]

    def note_response_complete(self, pod: str) -> None:
        """Record a complete response without an error, which clears the pod's failures."""
        self._health.pop(pod, None)

    def charge(self, pod: str, ending: Ending, now: float) -> None:
        """Count what the ending of a request, or of an attempt, says against the endpoint."""
        match CHARGES[ending].engine:
            case "Failure":
                self.note_failure(pod, now)
            case "Unreachable":
                self.note_failure(pod, now, is_unreachable=True)
            case "BrokeOff":
                self.note_failure(pod, now, broke_off=True)
            case None:
                pass

    def note_failure(
        self, pod: str, now: float, *, is_unreachable: bool = False, broke_off: bool = False
    ) -> None:
        """Count a failed attempt.

        is_unreachable: no connection could be made. broke_off: the response had begun.
        """
        self._health = {
            p: h for p, h in self._health.items() if h.retry_at_s > now - FORGET_AFTER_S
        }
        before = self._health.get(pod, Health())
        after = before.after_failure(now, is_unreachable=is_unreachable, broke_off=broke_off)
        self._health[pod] = after
        if after.is_failing and not before.is_failing:
            self._note_ejected(pod)

    def excuse_failures(self, pods: Iterable[str]) -> None:
        """Take back one failure for each entry of `pods`, as their requests may have been at fault."""
        for pod in pods:
            if pod in self._health:
                self._health[pod] = self._health[pod].after_excuse()
