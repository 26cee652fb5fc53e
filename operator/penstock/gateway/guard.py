"""Ends a request from outside: its client leaves, its time is over, or the gateway stops.

The work of a request runs in the task that the server made for it, with no wait of its own around
each chunk. What may end it sits beside it and cancels that task, in whatever phase it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Phase(StrEnum):
    RECEIVING = "receiving"
    WAITING = "waiting"
    FIRST_BYTE = "first_byte"
    STREAMING = "streaming"


class Cause(StrEnum):
    CLIENT_LEFT = "client_left"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


class Interrupted(Exception):
    """The request was ended in `phase`. is_total: after the time that a request may take altogether."""

    def __init__(self, cause: Cause, phase: Phase, *, is_total: bool = False) -> None:
        super().__init__(f"{cause} while {phase}")
        self.cause = cause
        self.phase = phase
        self.is_total = is_total


class Guard:
    """`with Guard(...)`: the block raises Interrupted when something outside ends it.

    receive: the rest of the client's messages. everyone: where the guards of all requests are kept,
    for the gateway's own end.
    """

    def __init__(self, receive: Receive, total_s: float, everyone: set["Guard"]) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._everyone = everyone
        self._ends_at_s = self._loop.time() + total_s
        self._deadline_s = self._ends_at_s
        self._timer: asyncio.TimerHandle | None = None
        self._cause: Cause | None = None
        self.phase = Phase.WAITING

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher = self._loop.create_task(self._watch())
        self._everyone.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.dismiss()
        if self._cause is not None and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            is_total = self._deadline_s == self._ends_at_s
            raise Interrupted(self._cause, self.phase, is_total=is_total) from None

    def dismiss(self) -> None:
        """From now on nothing ends the request but itself."""
        self._everyone.discard(self)
        self._watcher.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def allow(self, phase: Phase, seconds: float) -> None:
        """From now on the request is in `phase`, for at most `seconds`."""
        self.phase = phase
        self._deadline_s = min(self._loop.time() + seconds, self._ends_at_s)
        # A timer that is early looks again when it fires: cheaper than a new one for each chunk.
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._arm()

    def relax(self) -> None:
        """Only the total counts: the client, not the engine, is awaited."""
        self._deadline_s = self._ends_at_s

    def interrupt(self, cause: Cause) -> None:
        if self._cause is None:
            self._cause = cause
            self._task.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline_s, self._look)

    def _look(self) -> None:
        if self._loop.time() >= self._deadline_s:
            self.interrupt(Cause.TIMEOUT)
        else:
            self._arm()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.interrupt(Cause.CLIENT_LEFT)
