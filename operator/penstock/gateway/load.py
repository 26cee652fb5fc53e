"""What the gateway knows of each engine by itself: tokens in flight, and how connecting went."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from penstock.core.routing import Endpoint, Health

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
        return {
            e.pod
            for e in endpoints
            if e.pod in self._health and self._health[e.pod].is_ejected(now)
        }

    def picked(self, pod: str, now: float) -> None:
        """A request goes there; if the engine is failing, it goes as its probe."""
        health = self._health.get(pod)
        if health is not None and health.is_failing:
            self._health[pod] = health.while_probed(now)

    def connected(self, pod: str) -> None:
        self._health.pop(pod, None)

    def failed_to_connect(self, pod: str, now: float) -> None:
        self._health = {
            p: h for p, h in self._health.items() if h.retry_at_s > now - FORGET_AFTER_S
        }
        self._health[pod] = self._health.get(pod, Health()).after_failure(now)


class RetryBudget:
    """Bounds how many requests may be at a second or later attempt at the same time."""

    def __init__(self, ratio: float, minimum: int) -> None:
        self._ratio = ratio
        self._minimum = minimum
        self.in_flight = 0

    def has_room(self, requests_in_flight: int) -> bool:
        return self.in_flight < max(self._minimum, int(self._ratio * requests_in_flight))

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
