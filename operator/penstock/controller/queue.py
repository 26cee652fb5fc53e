"""Work queue of the reconciler: runs a key once at a time, and again if it changed meanwhile."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from penstock.controller.failures import Failures
from penstock.errors import KubeError, Transient

logger = logging.getLogger(__name__)

Key = tuple[str, str]

FIRST_RETRY_S, LAST_RETRY_S = 1.0, 30.0
# Minimum pause after an error, even if the key changes; doubled with each error in a row. An error
# message that differs each time changes the status, which would trigger the next run at once.
FIRST_REST_S, LAST_REST_S = 0.1, 5.0


class WorkQueue:
    """Calls `handle(key)` for each added key, and again after as many seconds as it returns.

    Any error is retried with exponential, jittered back-off.
    """

    def __init__(
        self,
        handle: Callable[[Key], Awaitable[float | None]],
        failures: Failures,
        *,
        workers: int = 8,
    ) -> None:
        self._handle = handle
        self._failures = failures
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._dirty: set[Key] = set()
        self._pauses: dict[Key, asyncio.Event] = {}
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._slots = asyncio.Semaphore(workers)

    def add(self, key: Key) -> None:
        """Handle the key soon, or once more after the run in progress. Ends its back-off."""
        self._dirty.add(key)
        if key in self._pauses:
            self._pauses[key].set()
        elif key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._work(key))

    async def _work(self, key: Key) -> None:
        retry_s, rest_s = FIRST_RETRY_S, FIRST_REST_S
        try:
            while key in self._dirty:
                self._dirty.discard(key)
                error = await self._run(key)
                if error is None:
                    retry_s, rest_s = FIRST_RETRY_S, FIRST_REST_S
                    continue
                asked_s = error.delay_s if isinstance(error, Transient) else None
                jitter = 0.5 + random.random()  # noqa: S311 - spreads retries
                await asyncio.sleep(rest_s)
                await self._pause(key, (asked_s or retry_s * jitter) - rest_s)
                retry_s, rest_s = min(retry_s * 2, LAST_RETRY_S), min(rest_s * 2, LAST_REST_S)
                self._dirty.add(key)
        finally:
            self._tasks.pop(key, None)

    async def _run(self, key: Key) -> Exception | None:
        """Handles the key once and returns its error, which is logged."""
        try:
            async with self._slots:
                self._set_alarm(key, await self._handle(key))
        except KubeError as error:
            logger.warning("%s/%s: %s: %s", *key, type(error).__name__, error)
            return error
        except Exception as error:  # noqa: BLE001 - retried like any other
            self._failures.report("reconcile", "/".join(key), error)
            return error
        return None

    def _set_alarm(self, key: Key, after_s: float | None) -> None:
        """Replace the key's alarm."""
        if key in self._alarms:
            self._alarms.pop(key).cancel()
        if after_s is not None:
            loop = asyncio.get_running_loop()
            self._alarms[key] = loop.call_later(after_s, self.add, key)

    async def _pause(self, key: Key, seconds: float) -> None:
        """Waits for so many seconds, or until the key changes."""
        if key in self._dirty or seconds <= 0:
            return
        self._pauses[key] = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pauses[key].wait(), seconds)
        finally:
            del self._pauses[key]
