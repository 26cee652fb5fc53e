"""From a checked request to an answer: wait for a pod, choose one, try, try another."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from penstock.adapters.clock import monotonic
from penstock.adapters.watch import Key
from penstock.core.routing import Endpoint, NoEndpoint, PodHealth, pick
from penstock.gateway.answer import Refusal
from penstock.gateway.fleet import Fleet
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.telemetry import Telemetry
from penstock.gateway.upstream import Answering, Upstream, UpstreamFailed

FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """A request for one service, ready to be sent."""

    service: Key
    path: str
    body: bytes
    headers: dict[str, str]
    arrived_s: float

    @property
    def label(self) -> str:
        return f"{self.service[0]}/{self.service[1]}"


class Director:
    """Knows how loaded and how sound each pod is; both forgotten with the pod."""

    def __init__(
        self, fleet: Fleet, upstream: Upstream, settings: GatewaySettings, telemetry: Telemetry
    ) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._settings = settings
        self._telemetry = telemetry
        self._in_flight: dict[str, int] = {}
        self._health: dict[str, PodHealth] = {}
        self._active = 0
        self._retrying = 0
        self._waiting = 0

    @asynccontextmanager
    async def answer(self, call: Call) -> AsyncIterator[Answering]:
        """The first answer that has a byte. Raises Refusal when there is none to be had.

        Only what failed before its first byte is tried again. A refused connection cost nobody
        anything, so it is tried until the wait for an endpoint is over. A broken one, or a 503 of
        an engine that drains or is full, is tried a few times: once for free, since the pod may
        have died, and then within the budget.
        """
        tried: set[str] = set()
        attempts = refusals = 0
        self._active += 1
        try:
            while True:
                endpoint = await self._endpoint(call, tried)
                tried.add(endpoint.pod)
                with self._counted(endpoint):
                    try:
                        async with self._upstream.post(
                            endpoint.address, call.path, call.body, call.headers
                        ) as answering:
                            attempts += 1
                            if answering.status != 503 or not self._may_retry(attempts):
                                self._health.pop(endpoint.pod, None)
                                yield answering
                                return
                    except UpstreamFailed as failure:
                        self._note_failure(endpoint, failure)
                        refusals += failure.refused
                        attempts += not failure.refused
                        self._give_up_on(call, failure, attempts)
                await self._pause_before_retry(call, attempts + refusals)
        finally:
            self._active -= 1

    def _give_up_on(self, call: Call, failure: UpstreamFailed, attempts: int) -> None:
        """Raises Refusal when the request is not to be sent again."""
        if failure.timed_out:
            raise Refusal(504, f"the engine {failure}") from failure
        if failure.refused:
            if monotonic() - call.arrived_s > self._settings.wait_for_endpoint_s:
                raise Refusal(503, "no engine can be reached", retry_after_s=5) from failure
        elif not self._may_retry(attempts):
            raise Refusal(502, f"the engine {failure}") from failure

    async def _endpoint(self, call: Call, tried: set[str]) -> Endpoint:
        """The pod to try next; waits for one to become ready. Raises Refusal."""
        choice = self._pick(call, tried)
        if not isinstance(choice, NoEndpoint):
            return choice
        if self._waiting >= self._settings.max_waiting:
            raise Refusal(503, "too many requests wait for this model", retry_after_s=2)
        self._waiting += 1
        self._telemetry.waiting.labels(call.label).inc()
        try:
            async with asyncio.timeout(self._settings.wait_for_endpoint_s):
                while isinstance(choice, NoEndpoint):
                    await self._fleet.changed()
                    choice = self._pick(call, tried)
                return choice
        except TimeoutError as error:
            raise Refusal(503, "no engine of this model is ready", retry_after_s=5) from error
        finally:
            self._waiting -= 1
            self._telemetry.waiting.labels(call.label).dec()

    def _pick(self, call: Call, tried: set[str]) -> Endpoint | NoEndpoint:
        service = self._fleet.snapshot(call.service)
        if service is None:
            raise Refusal(404, "the model is not served any more")
        endpoints = [replace(e, in_flight=self._in_flight.get(e.pod, 0)) for e in service.endpoints]
        draw = random.random()  # noqa: S311 - spreads load
        choice = pick(
            endpoints, service.weights, self._health, tried=tried, draw=draw, now=monotonic()
        )
        return choice if isinstance(choice, NoEndpoint) else choice.endpoint

    def _may_retry(self, attempts: int) -> bool:
        if attempts == 1:
            return True
        allowed = max(
            self._settings.min_retries, self._active * self._settings.retry_budget_fraction
        )
        return attempts < self._settings.max_attempts and self._retrying < allowed

    async def _pause_before_retry(self, call: Call, failures: int) -> None:
        """Short at first: a killed pod has neighbours. Longer then: they may all be starting."""
        self._telemetry.retries.labels(call.label).inc()
        self._retrying += 1
        try:
            limit_s = min(FIRST_PAUSE_S * 2 ** (failures - 1), LAST_PAUSE_S)
            await asyncio.sleep(limit_s * random.random())  # noqa: S311 - jitter
        finally:
            self._retrying -= 1

    def _note_failure(self, endpoint: Endpoint, failure: UpstreamFailed) -> None:
        if failure.refused:
            before = self._health.get(endpoint.pod, PodHealth())
            self._health[endpoint.pod] = before.failed(monotonic())
            if len(self._health) > 10_000:  # pods come and go, and nobody says which are gone
                self._health.clear()

    def _counted(self, endpoint: Endpoint) -> "_Counted":
        return _Counted(self._in_flight, endpoint.pod)


class _Counted:
    """A request in flight to a pod, for as long as the context lasts."""

    def __init__(self, counts: dict[str, int], pod: str) -> None:
        self._counts = counts
        self._pod = pod

    def __enter__(self) -> None:
        self._counts[self._pod] = self._counts.get(self._pod, 0) + 1

    def __exit__(self, *_: object) -> None:
        self._counts[self._pod] -= 1
        if not self._counts[self._pod]:
            del self._counts[self._pod]
