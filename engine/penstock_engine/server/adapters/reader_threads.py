"""Threads that read files, apart from the event loop and from the engine."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class ReaderThreads:
    """Runs functions that read folders on threads: at most `count` at the same time, and one for each folder.

    A read can take forever, such as on a network volume. It then keeps one of the `count` places, however
    often it is tried again. The process does not wait for its thread when it ends, as it would for threads
    of asyncio.
    """

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._ends: dict[Path, asyncio.Event] = {}  # of the folders that are being read

    async def run(self, folder: Path, function: Callable[[], T]) -> T:
        """Call a function on a free thread, after an earlier call for the same folder has ended.

        If this call is cancelled, a function that has begun still runs to its end.
        """
        while folder in self._ends:
            await self._ends[folder].wait()
        self._ends[folder] = asyncio.Event()
        try:
            await self._free.acquire()
        except BaseException:
            self._ends.pop(folder).set()
            raise
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        thread = threading.Thread(target=self._call, args=(folder, function, done), daemon=True)
        thread.start()
        return await done

    def _call(self, folder: Path, function: Callable[[], T], done: asyncio.Future[T]) -> None:
        report: Callable[[], None]
        try:
            report = partial(done.set_result, function())
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            report = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the event loop is closed
            done.get_loop().call_soon_threadsafe(self._finish, folder, done, report)

    def _finish(self, folder: Path, done: asyncio.Future[Any], report: Callable[[], None]) -> None:
        self._free.release()
        self._ends.pop(folder).set()
        if not done.done():
            report()
