"""Adapts the number of OpenMP threads to the CPU load that is measured during steps."""

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock_engine.machine.cgroup import throttled_s
from penstock_engine.machine.device import num_threads
from penstock_engine.machine.thread_count import CpuUsage, ThreadCount, decide

logger = logging.getLogger(__name__)

# Step time between two decisions. The kernel counts idle time in ticks of 10 ms.
WINDOW_S = 0.25
# A longer pause between steps starts a new window: the CPU use of other programs in a pause says nothing
# about steps.
MAX_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """Counters of the kernel, in seconds. Only differences between two readings have a meaning.

    waited_s: time that all threads of this process waited for a core or for quota. idle_s: idle time
    of all cores that it may use.
    """

    waited_s: float
    idle_s: float


def read_counters(root: Path = Path("/")) -> CpuCounters | None:
    """Read the counters from /proc and the cgroup; None if the kernel does not have them."""
    idle_s = _idle_s(root)
    waited_ns = [_run_queue_wait_ns(path) for path in (root / "proc/self/task").glob("*/schedstat")]
    if idle_s is None or not waited_ns:
        return None
    return CpuCounters(sum(waited_ns) * 1e-9 + throttled_s(root), idle_s)


def _run_queue_wait_ns(schedstat: Path) -> int:
    try:
        return int(schedstat.read_text().split()[1])
    except (OSError, IndexError):  # the thread has ended
        return 0


def _idle_s(root: Path) -> float | None:
    """Idle time of the cores that this process may use, time in wait for disks included."""
    own = {f"cpu{index}" for index in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in (root / "proc/stat").read_text().splitlines()]
    except OSError:
        return None
    ticks = [int(words[4]) + int(words[5]) for words in lines if words and words[0] in own]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if any(ticks) else None


@functools.cache
def allowed_threads() -> int:
    """Maximum number of threads: the smaller of torch's default, which OMP_NUM_THREADS sets, and the
    cores this process may use.

    Cached at the first call, because torch later returns the number that was set last.
    """
    return min(torch.get_num_threads(), num_threads())


class CpuThreads:
    """Sets the number of threads that compute steps, from 1 to max_threads. Not thread-safe."""

    def __init__(
        self,
        max_threads: int,
        *,
        on_count: Callable[[int], None] = lambda count: None,
        read: Callable[[], CpuCounters | None] = read_counters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """on_count: called with the number of threads, now and after changes."""
        self._max_threads = max_threads
        self._on_count = on_count
        self._read = read
        self._clock = clock
        self._threads = ThreadCount(max_threads)
        self._computing: threading.Thread | None = None  # has the number set
        self._first: CpuCounters | None = None  # at the beginning of the window
        self._first_s = 0.0
        self._last_s = -float("inf")  # the end of the last step
        self._steps_s = 0.0  # step time in the window
        on_count(max_threads)

    @property
    def count(self) -> int:
        return self._threads.count

    @contextmanager
    def step(self) -> Iterator[None]:
        """Context manager that measures a step.

        Enter it on the thread that computes, because OpenMP's number of threads is set per thread.
        """
        if self._computing is not threading.current_thread():
            self._computing = threading.current_thread()
            torch.set_num_threads(self.count)
        started_s = self._clock()
        if started_s - self._last_s > MAX_PAUSE_S:
            self._begin_window(self._read(), started_s)
        try:
            yield
        finally:
            self._last_s = self._clock()
            self._steps_s += self._last_s - started_s
            if self._steps_s >= WINDOW_S:
                self._end_window(self._last_s)

    def _begin_window(self, counters: CpuCounters | None, now_s: float) -> None:
        self._first, self._first_s, self._steps_s = counters, now_s, 0.0

    def _end_window(self, now_s: float) -> None:
        last = self._read()
        before = self._threads.count
        decision = decide(
            self._threads, self._usage(last, now_s), max_threads=self._max_threads, now_s=now_s
        )
        self._threads = decision.threads
        self._begin_window(last, now_s)
        if self._threads.count != before:
            logger.debug("%d threads instead of %d: %s", self.count, before, decision.reason)
            torch.set_num_threads(self.count)
            self._on_count(self.count)

    def _usage(self, last: CpuCounters | None, now_s: float) -> CpuUsage | None:
        """Averages over the window; None without counters.

        Cores that this process left idle between steps are not counted as free.
        """
        if self._first is None or last is None:
            return None
        pauses_s = max(0.0, now_s - self._first_s - self._steps_s)
        idle_s = last.idle_s - self._first.idle_s - pauses_s * self.count
        waited_s = last.waited_s - self._first.waited_s
        return CpuUsage(max(0.0, waited_s) / self._steps_s, max(0.0, idle_s) / self._steps_s)
