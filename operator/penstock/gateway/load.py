"""Per-engine state of this gateway: tokens in flight and health."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from penstock.core.routing import outliers
from penstock.core.routing.outliers import Health
from penstock.core.routing.pick import Endpoint
from penstock.gateway.keyed_count import KeyedCount

# A failing engine is forgotten when nothing was sent to it for so long: it is gone.
FORGET_AFTER_S = 600.0


class Loads:
    """Pods are keys throughout: an address may be another pod's tomorrow."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        self._health: dict[str, Health] = {}

    @contextmanager
    def hold(self, pod: str, tokens: int) -> Iterator[None]:
        """Count `tokens` as in flight on the pod."""
        self.tokens[pod] = self.tokens.get(pod, 0) + tokens
        try:
            yield
        finally:
            self.tokens[pod] -= tokens
            if not self.tokens[pod]:
                del self.tokens[pod]

    def ejected(self, endpoints: Iterable[Endpoint], now: float) -> set[str]:
        if not self._health:
            return set()
        return outliers.ejected((e.pod for e in endpoints), self._health, now)

    @property
    def suspects(self) -> set[str]:
        """Pods that failed a request and have answered none since; a retry avoids them if it can."""
        return set(self._health)

    def picked(self, pod: str, now: float) -> None:
        """A request goes there; if the engine is failing, it goes as its probe."""
        health = self._health.get(pod)
        if health is not None and health.is_failing:
            self._health[pod] = health.while_probed(now)

    def began(self, pod: str) -> None:
        """Forget the pod's failures, unless its answers broke off: an answer without an error began."""
        health = self._health.get(pod)
        if health is not None and not health.has_broken_off:
            del self._health[pod]

    def answered(self, pod: str) -> None:
        """Forget the pod's failures: it gave an answer without an error, all of it."""
        self._health.pop(pod, None)

    def failed(
        self, pod: str, now: float, *, is_unreachable: bool = False, broke_off: bool = False
    ) -> None:
        """Count a failed attempt. is_unreachable: no connection could be made. broke_off: its answer
        had begun."""
        self._health = {
            p: h for p, h in self._health.items() if h.retry_at_s > now - FORGET_AFTER_S
        }
        before = self._health.get(pod, Health())
        self._health[pod] = before.after_failure(
            now, is_unreachable=is_unreachable, broke_off=broke_off
        )

    def excuse(self, pods: Iterable[str]) -> None:
        """Take back one failure of each pod, because all of them failed the same request."""
        for pod in pods:
            if pod in self._health:
                self._health[pod] = self._health[pod].after_excuse()


class RetryBudget:
    """Bounds how many requests of a service may be at their second or a later attempt at once."""

    def __init__(self, ratio: float, minimum: int) -> None:
        self._ratio = ratio
        self._minimum = minimum
        self._retrying = KeyedCount()

    @property
    def in_flight(self) -> int:
        return self._retrying.total

    def has_room(self, service: str, open_requests: int) -> bool:
        """Whether one more retry may start. open_requests: of the service, now."""
        return self._retrying.of(service) < max(self._minimum, int(self._ratio * open_requests))

    def hold(self, service: str) -> AbstractContextManager[None]:
        return self._retrying.hold(service)
