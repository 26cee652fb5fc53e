"""The wait of one request for an endpoint: for a new snapshot, for the retry budget, or for a back-off."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from penstock.core.routing.pick import NoEndpoint
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.stats.request_record import RequestRecord

# Back-off before endpoints that failed the request are tried again, when all of them did. It doubles.
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.25, 2.0
# Interval at which a waiting retry checks the retry budget.
BUDGET_CHECK_S = 0.05

BUDGET_SPENT = NoEndpoint("too many requests are being retried")

T = TypeVar("T")


class RequestWait:
    """Time that one request waits for an endpoint. left_s: seconds that it may still wait."""

    def __init__(
        self, state: GatewayState, record: RequestRecord, cancellation: CancellationScope
    ) -> None:
        self._state = state
        self._record = record
        self._cancellation = cancellation
        self._backoff_s = FIRST_BACKOFF_S
        self.left_s = state.settings.wait_for_endpoint_s

    async def until(
        self,
        choose: Callable[[], T | NoEndpoint],
        choice: NoEndpoint,
        wait_for_change: Callable[[float], Awaitable[bool]],
        try_all: Callable[[], None],
    ) -> T:
        """Wait until `choose` finds something, and return it. Raises RequestError.

        choice: what it returned last. wait_for_change: waits for a change of the service, for some seconds;
        returns whether there was one. try_all: lets it choose endpoints that were tried already.
        """
        now = self._state.now()
        give_up_s, retry_all_s = now + self.left_s, now + self._backoff_s
        while True:
            now = self._state.now()
            left_s = give_up_s - now
            if left_s <= 0:
                raise RequestError(503, choice.reason, retry_after_s=RETRY_AFTER_S)
            if choice is BUDGET_SPENT:
                await wait_for_change(min(BUDGET_CHECK_S, left_s))
            elif not choice.all_tried:
                await wait_for_change(left_s)
            # Changes of the service end the wait too: they must not prolong the back-off.
            elif retry_all_s <= now or not await wait_for_change(min(retry_all_s - now, left_s)):
                try_all()
                self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)
                retry_all_s = self._state.now() + self._backoff_s
            chosen = choose()
            if not isinstance(chosen, NoEndpoint):
                return chosen
            choice = chosen

    @contextlib.contextmanager
    def counted(
        self,
        service: str,
        adapter: str = "",
        *,
        retry_after_s: int | None = None,
        is_queued: bool = False,
    ) -> Iterator[None]:
        """Count the request as waiting while the block runs, and its time against the limit.

        service: "namespace/name". adapter: the name of the one that it is for. retry_after_s: for a client
        whose request cannot be held, as too many wait; the hold has a limit of its own. None: it is not held.
        is_queued: an admission queue bounds how many wait. Raises RequestError.
        """
        state = self._state
        # Requests for a slow adapter must not keep others of the service from waiting.
        key = f"{service} {adapter}" if adapter else service
        if not is_queued and state.waiting_requests.count(key) >= state.settings.max_waiting:
            message = "too many requests wait for an engine"
            retry_s = RETRY_AFTER_S if retry_after_s is None else retry_after_s
            raise RequestError(503, message, retry_after_s=retry_s, reason="queue_full")
        self._cancellation.enter_phase(RequestPhase.WAIT, state.settings.total_timeout_s)
        gauge = state.metrics.waiting.labels(service)
        started_s = state.now()
        gauge.inc()
        try:
            with state.waiting_requests.hold(key), self._record.queued():
                yield
        finally:
            gauge.dec()
            waited_s = state.now() - started_s
            if retry_after_s is None:
                self.left_s -= waited_s
        state.metrics.wait_s.labels(service).observe(waited_s)
