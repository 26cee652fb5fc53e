"""Cancels a request from outside: its client disconnects, its time is over, or the gateway stops.

A request runs in the task that the server made for it, without a timeout around each chunk. A watcher
task and one timer run next to it and cancel that task, in whatever phase it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from enum import StrEnum
from typing import Any, Self

from penstock.gateway.request_lifecycle.timeline import RequestPhase

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class CancelCause(StrEnum):
    """Cause of a cancellation."""

    CLIENT_LEFT = "client_left"
    TIMEOUT = "timeout"
    ROUTE_TIMEOUT = "route_timeout"  # of the ModelRoute
    SHUTDOWN = "shutdown"


class RequestCancelled(Exception):
    """The request was cancelled from outside while it was in `phase`.

    is_total: whether its total time limit was reached, not that of the phase.
    """

    def __init__(self, cause: CancelCause, phase: RequestPhase, *, is_total: bool = False) -> None:
        super().__init__(f"{cause} while {phase}")
        self.cause = cause
        self.phase = phase
        self.is_total = is_total


class CancellationScope:
    """Context manager whose block raises RequestCancelled when the request is cancelled from outside.

    receive: gives the rest of the client's messages. total_s: time limit of the block. registry: the
    open scopes of all requests, for the shutdown of the gateway.
    """

    def __init__(
        self, receive: Receive, total_s: float, registry: set["CancellationScope"]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._registry = registry
        self._started_s = self._loop.time()
        self._ends_at_s = self._started_s + total_s
        self._deadline_s = self._ends_at_s
        self._timer: asyncio.TimerHandle | None = None
        self._total_cause = CancelCause.TIMEOUT
        self._cause: CancelCause | None = None
        self.phase = RequestPhase.WAIT

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher = self._loop.create_task(self._watch_client())
        self._registry.add(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close()
        if self._cause is not None and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            is_total = self._deadline_s == self._ends_at_s
            raise RequestCancelled(self._cause, self.phase, is_total=is_total) from None

    def close(self) -> None:
        """Let nothing cancel the request any longer."""
        self._registry.discard(self)
        self._watcher.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def enter_phase(self, phase: RequestPhase, seconds: float) -> None:
        """Set the phase of the request, and cancel it if the phase takes longer than `seconds`."""
        self.phase = phase
        self._deadline_s = min(self._loop.time() + seconds, self._ends_at_s)
        # A timer that is early checks again when it fires: cheaper than a new one for each chunk.
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._start_timer()

    def limit_by_route(self, seconds: float) -> None:
        """Lower the time limit of the block to `seconds` after its start."""
        if self._started_s + seconds >= self._ends_at_s:
            return
        self._ends_at_s, self._total_cause = self._started_s + seconds, CancelCause.ROUTE_TIMEOUT
        self._deadline_s = min(self._deadline_s, self._ends_at_s)
        self._start_timer()

    def lift_phase_limit(self) -> None:
        """Leave only the total time limit: the request waits for its client, not for the engine."""
        self._deadline_s = self._ends_at_s

    def cancel(self, cause: CancelCause) -> None:
        """Cancel the request. Only the first cause counts."""
        if self._cause is None:
            self._cause = cause
            self._task.cancel()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        if self._loop.time() >= self._deadline_s:
            is_total = self._deadline_s == self._ends_at_s
            self.cancel(self._total_cause if is_total else CancelCause.TIMEOUT)
        else:
            self._start_timer()

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cancel(CancelCause.CLIENT_LEFT)
