"""Endpoint selection for one request, with waiting and retries."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.routing.pick import Endpoint, NoEndpoint, Pick, PickedSide, pick, pick_side
from penstock.core.routing.retry import Failure
from penstock.gateway.guard import Guard, Phase
from penstock.gateway.line import Full
from penstock.gateway.openai import Refused
from penstock.gateway.seat import Seat
from penstock.gateway.shared import Shared
from penstock.gateway.snapshot import Service
from penstock.gateway.ticket import Ticket

RETRY_AFTER_S = 5
# Back-off before engines that failed the request are tried again, when all of them did.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.25, 2.0
# How often a waiting retry checks the retry budget.
BUDGET_PAUSE_S = 0.05
# How long a request waits for a retry after an engine's error answer, which is then passed on.
ERROR_PATIENCE_S = 1.0

BUDGET_SPENT = NoEndpoint("too many requests are tried again")


@dataclass(frozen=True, slots=True)
class Found:
    """An engine to try. seat: its reserved slot, if the service has objectives and it is no retry."""

    endpoint: Endpoint
    seat: Seat | None = None


class Search:
    """Chooses the engines for one request. key: its sticky key. tokens: its estimated KV cache use."""

    def __init__(
        self,
        shared: Shared,
        service: str,
        ticket: Ticket,
        guard: Guard,
        *,
        key: bytes | None,
        tokens: int,
    ) -> None:
        self._shared = shared
        self._service = service
        self._ticket = ticket
        self._guard = guard
        self._key = key
        self._tokens = tokens
        self._tried: set[str] = set()
        self._failed: set[str] = set()  # engines that may have failed because of the request
        self._has_error = False
        self._patience_s = shared.settings.wait_for_endpoint_s
        self._pause_s = FIRST_PAUSE_S

    def failed(self, pod: str, failure: Failure, took_s: float) -> None:
        """Record that the attempt at the pod failed after took_s; `next` avoids that pod."""
        shared = self._shared
        is_unreachable = failure is Failure.CONNECT
        shared.loads.failed(pod, shared.now(), is_unreachable=is_unreachable)
        self._tried.add(pod)
        if is_unreachable:
            self._patience_s -= took_s
        else:
            self._failed.add(pod)
        if failure is Failure.ERROR:
            self._has_error = True
            self._patience_s = min(self._patience_s, ERROR_PATIENCE_S)

    def gave_up(self) -> None:
        """Record that no engine answered. If several failed, that may be the request's fault: each is
        excused one failure."""
        if len(self._failed) > 1:
            self._shared.loads.excuse(self._failed)

    def serves(self, pod: str) -> bool:
        """Whether the pod is still an engine of the service with traffic."""
        service = self._shared.fleet.snapshot.get(self._service)
        return service is not None and any(
            e.pod == pod and service.weights.get(e.side, 0) > 0 for e in service.endpoints
        )

    async def next(self, *, is_retry: bool) -> Found:
        """The next engine to try, after waiting for one if necessary. Raises Refused."""
        # The last connection attempt that started in time may take its whole time-out.
        if self._patience_s < -self._shared.settings.connect_timeout_s:
            message = "no connection to an engine could be made in time"
            raise Refused(503, message, retry_after_s=RETRY_AFTER_S)
        while True:
            chosen = self._choose(is_retry)
            if isinstance(chosen, NoEndpoint):
                with self._waiting():
                    chosen = await self._change(chosen, is_retry)
            if isinstance(chosen, Found):
                return chosen
            seat = await self._stand_in_line(chosen)
            if seat is not None:
                return Found(seat.endpoint, seat)

    def _choose(self, is_retry: bool) -> Found | PickedSide | NoEndpoint:
        """A revision and cohort to queue for if the service has objectives; else, or after a failed
        attempt, an engine."""
        shared = self._shared
        num_open = shared.open_requests.of(self._service)
        if is_retry and not shared.budget.has_room(self._service, num_open):
            return BUDGET_SPENT
        service = self._current()
        now, draw = shared.now(), random.random()  # noqa: S311 - spreads load
        ejected = shared.loads.ejected(service.endpoints, now)
        if is_retry:  # a healthy engine shows whether the request itself is at fault
            ejected |= shared.loads.suspects
        if service.objectives is not None and not self._tried:
            return pick_side(
                service.endpoints, service.weights, draw, ejected=ejected, key=self._key
            )
        choice = pick(
            service.endpoints,
            service.weights,
            draw,
            self._tried,
            load=shared.loads.tokens,
            ejected=ejected,
            key=self._key,
        )
        if isinstance(choice, Pick):
            shared.loads.picked(choice.endpoint.pod, now)
            return Found(choice.endpoint)
        if self._has_error:
            raise Refused(503, choice.reason, retry_after_s=RETRY_AFTER_S)
        return choice

    async def _change(self, chosen: NoEndpoint, is_retry: bool) -> Found | PickedSide:
        """Wait until there is something to choose, and choose it. Raises Refused."""
        fleet, choice = self._shared.fleet, chosen
        now = self._shared.now()
        give_up_s, again_s = now + self._patience_s, now + self._pause_s
        while True:
            now = self._shared.now()
            left_s = give_up_s - now
            if left_s <= 0:
                raise Refused(503, choice.reason, retry_after_s=RETRY_AFTER_S)
            if choice is BUDGET_SPENT:
                await fleet.wait(min(BUDGET_PAUSE_S, left_s))
            elif not choice.all_tried:
                await fleet.wait(left_s)
            # Changes of other services end `wait` too: they must not prolong the pause.
            elif again_s <= now or not await fleet.wait(min(again_s - now, left_s)):
                self._tried.clear()
                self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
                again_s = self._shared.now() + self._pause_s
            found = self._choose(is_retry)
            if not isinstance(found, NoEndpoint):
                return found
            choice = found

    async def _stand_in_line(self, chosen: PickedSide) -> Seat | None:
        line = self._shared.lines.get(self._service, chosen.side)
        if line is None:
            return None
        ticket = self._ticket
        try:
            seat = await line.seat(
                ticket.came_s, ticket.prompt_tokens, self._tokens, self._patience_s, self._waiting()
            )
        except Full as full:
            raise Refused(503, str(full), retry_after_s=full.retry_after_s) from None
        if seat is not None:
            self._shared.loads.picked(seat.endpoint.pod, self._shared.now())
        return seat

    def _current(self) -> Service:
        service = self._shared.fleet.snapshot.get(self._service)
        if service is None:
            raise Refused(404, "the model does not exist any more", code="model_not_found")
        return service

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count the request as waiting while the block runs, against its time limit for that."""
        shared = self._shared
        if shared.waiting_requests.of(self._service) >= shared.settings.max_waiting:
            message = "too many requests wait for an engine"
            raise Refused(503, message, retry_after_s=RETRY_AFTER_S)
        self._guard.allow(Phase.WAITING, shared.settings.total_timeout_s)
        gauge = shared.metrics.waiting.labels(self._service)
        began_s = shared.now()
        gauge.inc()
        try:
            with shared.waiting_requests.hold(self._service), self._ticket.queued():
                yield
        finally:
            gauge.dec()
            waited_s = shared.now() - began_s
            self._patience_s -= waited_s
        shared.metrics.wait_s.labels(self._service).observe(waited_s)
