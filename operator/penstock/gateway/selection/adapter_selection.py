"""Finds the endpoints that have the adapter of one request, and loads it where no endpoint has it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from penstock.clients.pods.engine_adapters import EngineFailure
from penstock.core.adapters.load_failures import LoadFailure, is_refused_by_all
from penstock.core.adapters.route import MAX_WAIT_S, Refuse, Wait
from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint
from penstock.gateway.adapters.loads import AdapterLoad
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Service
from penstock.gateway.state.gateway_state import GatewayState

CODE = "adapter_load_failed"
# Status of a request for an adapter that engines refuse to load: Failed Dependency.
REFUSED_STATUS = 424


class AdapterSelector:
    """The copies for one request. waiting: entered while it waits for one."""

    def __init__(
        self,
        state: GatewayState,
        adapter: Adapter,
        waiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._state = state
        self._adapter = adapter
        self._stats = state.stats.adapters.get(adapter)
        self._waiting = waiting
        self._is_missed = False
        self._waited_s = 0.0
        self._waited_for = ""
        self._failures: dict[str, EngineFailure] = {}  # of loads, by pod

    def able(self, service: Service) -> Sequence[Endpoint]:
        """Return the endpoints that take adapters. Raises RequestError if there are engines and none does."""
        able = [e for e in service.endpoints if e.pod in service.lora_engines]
        if service.endpoints and not able:
            message = (
                f"no engine of {service.key} takes adapters: set spec.engine.lora of the service"
            )
            raise RequestError(503, message, code=CODE)
        return able

    async def find(
        self, service: Service, endpoints: Sequence[Endpoint], left_s: float
    ) -> tuple[Endpoint, ...]:
        """Return those of the endpoints that have the adapter; none after a wait, which may change all.

        left_s: how long the request may still wait. Raises RequestError.
        """
        left_s = min(left_s, MAX_WAIT_S - self._waited_s)
        copies, name = self._state.adapters, self._adapter.engine_name
        if found := copies.resident(self._adapter, endpoints):
            for endpoint in found:
                copies.residency.note_used(endpoint.pod, name)
            copies.residency.waiters.note_found(self._adapter.service, name)
            return found
        self._count_miss()
        untried = self._untried(endpoints)
        tokens = self._state.engines.tokens
        match copies.choose(self._adapter, service, untried, tokens, self._waited_s):
            case AdapterLoad() as load:
                await self._load(load, left_s)
            case Wait() as wait:
                await self._wait(wait, left_s)
            case Refuse(reason, retry_after_s):
                cause = f"{reason}: {self._waited_for}" if self._waited_for else reason
                raise self._unavailable(cause, retry_after_s)
            case LoadFailure() as failure:
                copies.residency.waiters.note_found(self._adapter.service, name)
                raise self._refused(failure)
            case chosen:
                return chosen
        return ()

    def _untried(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """The endpoints whose load has not failed. Raises RequestError if none is left to ask."""
        tried = [self._failures[e.pod] for e in endpoints if e.pod in self._failures]
        untried = [e for e in endpoints if e.pod not in self._failures]
        num_refusals = len(self._state.adapters.failures.find(self._adapter, untried))
        is_nobody_left = is_refused_by_all(num_refusals, len(untried))
        # Another engine may load it later: that one's reason is the one to tell.
        if is_nobody_left and not is_refused_by_all(num_refusals, len(endpoints)):
            raise self._unavailable(f"no engine could load it: {tried[-1].message}")
        return untried

    def _count_miss(self) -> None:
        """Count, once per request, that no engine of its side had the adapter in memory."""
        if not self._is_missed:
            self._is_missed = True
            self._stats.misses += 1
            self._state.metrics.adapters.count_miss(self._adapter)

    @contextmanager
    def waiting_for_room(self, waiting: AbstractContextManager[None]) -> Iterator[None]:
        """Entered while the request waits for an engine that has a copy. waiting: entered too."""
        with waiting, self._stats.hold_queued():
            yield

    @contextmanager
    def _waiting_for_copy(self) -> Iterator[None]:
        adapter, state = self._adapter, self._state
        with (
            self._waiting(),
            self._stats.hold_waiting(),
            state.metrics.adapters.waiting(adapter),
            state.adapters.polls.wait(adapter.service),
        ):
            yield

    async def _load(self, load: AdapterLoad, left_s: float) -> None:
        """Load the adapter. After a refusal `find` asks another engine; other failures exclude this one."""
        started_s = self._state.now()
        try:
            with self._waiting_for_copy():
                async with asyncio.timeout(max(0.0, left_s)):
                    failure = await self._state.adapters.loads.load(load)
        except TimeoutError:
            raise self._unavailable("it was not loaded in time") from None
        finally:
            self._waited_s += self._state.now() - started_s
        if failure is not None and failure.kind != "Refused":
            self._failures[load.endpoint.pod] = failure

    async def _wait(self, wait: Wait, left_s: float) -> None:
        """Wait for a change of the copies. wait: the decision, with what the request waits for."""
        self._waited_for = wait.reason
        if left_s <= 0:
            raise self._unavailable(wait.reason)
        started_s = self._state.now()
        with self._waiting_for_copy():
            await self._state.adapters.residency.waiters.wait(
                self._adapter.service,
                self._adapter.engine_name,
                left_s,
                for_room=wait.pod is None,
            )
        self._waited_s += self._state.now() - started_s

    def _refused(self, failure: LoadFailure) -> RequestError:
        retry_after_s = max(1, round(failure.retry_at_s - self._state.now()))
        message = f"engines refuse the adapter `{self._adapter.served_name}`: {failure.reason}"
        return RequestError(
            REFUSED_STATUS,
            message,
            param="model",
            code=CODE,
            retry_after_s=retry_after_s,
            ending=Ending.ADAPTER_REFUSED,
        )

    def _unavailable(self, reason: str, retry_after_s: float | None = None) -> RequestError:
        message = f"no engine has the adapter `{self._adapter.served_name}` in memory: {reason}"
        seconds = RETRY_AFTER_S if retry_after_s is None else max(1, round(retry_after_s))
        return RequestError(503, message, code=CODE, retry_after_s=seconds)
