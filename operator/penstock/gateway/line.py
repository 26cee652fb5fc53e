"""Admission queue for the engines of one revision and cohort, in the order of deadlines."""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import count

from penstock.core.routing.admission import Admission, AdmissionSpec, retry_after_s
from penstock.core.routing.engine_load import EngineLoad, Place, Waiting
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.prefill_throughput import Pace
from penstock.gateway.seat import Seat

# A gateway does not know how large KV caches are. The engine's own queue guards them.
UNKNOWN_CAPACITY_TOKENS = 1 << 62
# Interval at which a non-empty queue is checked for changes that only time brings.
LOOK_AGAIN_S = 0.1

Ejected = Callable[[Iterable[Endpoint], float], set[str]]


class Full(Exception):
    """The queue is full, or the request waited too long. retry_after_s: when there may be room."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Line:
    """Admission queue. ejected: pods to avoid while there are others. now: the monotonic clock."""

    def __init__(self, spec: AdmissionSpec, ejected: Ejected, now: Callable[[], float]) -> None:
        self._admission = Admission(spec)
        self._ejected = ejected
        self._now = now
        self._belief = Pace()  # of an engine that is new here
        self._endpoints: dict[str, Endpoint] = {}
        self._loads: dict[str, EngineLoad] = {}
        self._given: dict[str, asyncio.Future[Seat | None]] = {}
        self._serials = count()
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, spec: AdmissionSpec, endpoints: Iterable[Endpoint]) -> None:
        """Set the current engines. Without any, all waiting requests are released."""
        self._admission.spec = spec
        known, self._endpoints = self._loads, {e.pod: e for e in endpoints}
        self._belief = next((load.pace.faded() for load in known.values()), self._belief)
        self._loads = {pod: known.get(pod) or self._new(pod) for pod in self._endpoints}
        if not self._loads:
            self.close()
        elif self._loads.keys() - known.keys():
            self._admission.renew()
            self.dispatch()

    def close(self) -> None:
        """Release all waiting requests, which then look for another engine."""
        for given in self._given.values():
            if not given.done():
                given.set_result(None)

    async def seat(
        self,
        came_s: float,
        prompt_tokens: float,
        kv_tokens: float,
        wait_s: float,
        while_waiting: AbstractContextManager[None],
    ) -> Seat | None:
        """came_s: on the monotonic clock. None when there is no engine here any more. Raises Full."""
        deadline_s = came_s + self._admission.spec.ttft_s
        name = str(next(self._serials))
        waiting = Waiting(name, came_s, deadline_s, prompt_tokens, kv_tokens)
        if not self._admission.add(waiting):
            raise self._full("too many requests wait for an engine")
        given: asyncio.Future[Seat | None] = asyncio.get_running_loop().create_future()
        self._given[name] = given
        seat = None
        try:
            self.dispatch()
            if not given.done():
                with while_waiting:
                    async with asyncio.timeout(wait_s):
                        await given
            seat = given.result()
        except TimeoutError:
            raise self._full("no engine had room in time") from None
        finally:
            del self._given[name]
            self._admission.remove(name)
            if seat is None:
                _give_back(given)
        return seat

    def dispatch(self) -> None:
        """Send on whoever may go."""
        if not len(self._admission):
            return
        now = self._now()
        ejected = self._ejected(self._endpoints.values(), now)
        loads = [load for load in self._loads.values() if load.pod not in ejected]
        loads = loads or list(self._loads.values())
        while (found := self._admission.next(loads, now)) is not None:
            waiting, fitting = found
            given = self._given[waiting.request_id]
            if given.done():  # it is leaving
                continue
            least = min(load.kv_tokens for load in fitting)
            idlest = [load for load in fitting if load.kv_tokens == least]
            load = random.choice(idlest)  # noqa: S311 - spreads load
            seat = Seat(self._endpoints[load.pod], Place(load, waiting, now), self.dispatch)
            given.set_result(seat)
        if len(self._admission) and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.dispatch()

    def _full(self, message: str) -> Full:
        retry_s = retry_after_s(self._admission, list(self._loads.values()))
        return Full(message, round(retry_s))

    def _new(self, pod: str) -> EngineLoad:
        return EngineLoad(pod=pod, kv_capacity_tokens=UNKNOWN_CAPACITY_TOKENS, pace=self._belief)


def _give_back(given: "asyncio.Future[Seat | None]") -> None:
    """The slot that was granted to a request while it was cancelled."""
    if given.done() and not given.cancelled():
        seat = given.result()
        if seat is not None:
            seat.left()
