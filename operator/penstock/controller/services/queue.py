"""Work queue of the reconciler: runs each key once at a time, and again if it changed meanwhile."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.clock import monotonic
from penstock.clients.machine.logs import service_fields
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.services.slots import Slots
from penstock.core.backoff import backoff_s
from penstock.errors import KubeError, Transient

logger = logging.getLogger(__name__)

FIRST_RETRY_S, MAX_RETRY_S = 1.0, 30.0
# Minimum pause after an error even if the key changes, doubled with each error in a row. Without it an
# error message that differs each time would loop: it changes the status, which triggers the next run.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
RESYNC_S = 300.0  # all services are reconciled this often, even without an event


class WorkQueue:
    """Calls `handle(key)` for each added key, and again after the number of seconds that it returns.

    handle: returns None if the key need not be handled again without a change. Any error is retried
    with exponential, jittered back-off. workers: keys that are handled at the same time.
    """

    def __init__(
        self,
        handle: Callable[[Key], Awaitable[float | None]],
        failures: Failures,
        metrics: OperatorMetrics,
        *,
        workers: int = 8,
    ) -> None:
        self._handle = handle
        self._failures = failures
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._dirty: dict[Key, float] = {}  # with the time since which each waits
        self._backoffs: dict[Key, asyncio.Event] = {}
        self._requeue_timers: dict[Key, asyncio.TimerHandle] = {}
        self._routine: set[Key] = set()  # dirty keys of which nothing is known to have changed
        self._slots = Slots(workers)
        self._metrics = metrics
        metrics.queue_depth.set_function(lambda: len(self._dirty))
        metrics.queue_backoffs.set_function(lambda: len(self._backoffs))

    def add(self, key: Key) -> None:
        """Handle the key soon, or once more after the run in progress. Ends its back-off."""
        self._routine.discard(key)
        self._slots.promote(key)
        self._add(key)

    async def resync(self, keys: Callable[[], Collection[Key]]) -> None:
        """Handle all keys once in RESYNC_S, one after the other, until cancelled."""
        while True:
            known = list(keys())
            for key in known:
                await asyncio.sleep(RESYNC_S / len(known))
                if key in keys():
                    self.add_routine(key)
            if not known:
                await asyncio.sleep(RESYNC_S)

    def add_routine(self, key: Key) -> None:
        """Handle the key after those that `add` was called with, unless it is one of them."""
        if key not in self._dirty:
            self._routine.add(key)
        self._add(key)

    def _add(self, key: Key) -> None:
        self._dirty.setdefault(key, monotonic())
        if key in self._backoffs:
            self._backoffs[key].set()
        elif key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._work(key))

    async def _work(self, key: Key) -> None:
        num_failures = 0  # in a row
        try:
            while key in self._dirty:
                error = await self._run(key)
                if error is None:
                    num_failures = 0
                    continue
                server_delay_s = error.delay_s if isinstance(error, Transient) else None
                jitter = 0.5 + random.random()  # noqa: S311 - spreads retries
                retry_s = backoff_s(num_failures, FIRST_RETRY_S, MAX_RETRY_S)
                min_pause_s = backoff_s(num_failures, FIRST_PAUSE_S, MAX_PAUSE_S)
                await asyncio.sleep(min_pause_s)
                await self._back_off(key, (server_delay_s or retry_s * jitter) - min_pause_s)
                num_failures += 1
                self._dirty.setdefault(key, monotonic())
        finally:
            self._tasks.pop(key, None)

    async def _run(self, key: Key) -> Exception | None:
        """Handle the key once. Returns its error, after logging it."""
        try:
            async with self._slots.hold(key, is_urgent=key not in self._routine):
                self._routine.discard(key)
                self._metrics.queue_wait_s.observe(monotonic() - self._dirty.pop(key))
                with self._metrics.reconcile_s.time():
                    after_s = await self._handle(key)
            self._metrics.reconciles.labels("retry" if after_s == 0 else "ok").inc()
            self._requeue_after(key, after_s)
        except KubeError as error:
            logger.warning(
                "not reconciled: %s: %s", type(error).__name__, error, extra=service_fields(key)
            )
            self._metrics.reconciles.labels("error").inc()
            return error
        except Exception as error:  # noqa: BLE001 - retried like any other
            self._failures.report("reconcile", "/".join(key), error)
            self._metrics.reconciles.labels("error").inc()
            return error
        return None

    def _requeue_after(self, key: Key, after_s: float | None) -> None:
        """Replace the timer that adds the key again. after_s None: no timer."""
        if key in self._requeue_timers:
            self._requeue_timers.pop(key).cancel()
        if after_s is not None:
            loop = asyncio.get_running_loop()
            self._requeue_timers[key] = loop.call_later(after_s, self.add, key)

    async def _back_off(self, key: Key, seconds: float) -> None:
        """Wait for this long, or until the key changes."""
        if key in self._dirty or seconds <= 0:
            return
        self._backoffs[key] = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._backoffs[key].wait(), seconds)
        finally:
            del self._backoffs[key]


def is_settled(body: Object, known: Object | None) -> bool:
    """Whether nobody waits for the service: no more than its status differs from what is known of it.

    known: the service as it was; None if it is new here, as are all services to a new leader.
    """
    if known is None:
        observed = body.get("status", {}).get("observedGeneration")
        return bool(observed == body["metadata"].get("generation"))
    return all(
        body["metadata"].get(name) == known["metadata"].get(name)
        for name in ("uid", "generation", "annotations", "labels", "deletionTimestamp")
    )
