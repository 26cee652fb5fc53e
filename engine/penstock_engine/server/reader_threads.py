"""Threads that read files, apart from the event loop and from the engine."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class ReaderThreads:
    """Runs functions on threads, at most `count` at the same time.

    A read can take forever, such as on a network volume. Its thread is then lost, but the process does not
    wait for it when it ends, as it would for threads of asyncio.
    """

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function on a free thread. If this call is cancelled, the function still runs to its end."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        thread = threading.Thread(target=self._call, args=(function, loop, done), daemon=True)
        thread.start()
        return await done

    def _call(
        self, function: Callable[[], T], loop: asyncio.AbstractEventLoop, done: asyncio.Future[T]
    ) -> None:
        report: Callable[[], None]
        try:
            report = partial(done.set_result, function())
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            report = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(self._finish, done, report)

    def _finish(self, done: asyncio.Future[Any], report: Callable[[], None]) -> None:
        self._free.release()
        if not done.done():
            report()
