"""Decides how many threads compute a step on the CPU, so that each thread has its own core.

OpenMP threads spin while they wait for the slowest of them. If one has no core, because another
program uses it, all the others wait for it: two threads on two cores, one of which is busy, compute a
tenth of what one thread does. So threads are removed as soon as they wait for cores, and added again
when cores have been free for a while.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

# Average number of threads that wait for a core, above which threads are removed. Measured: 0.67 for two
# threads beside one busy program on two cores; less than 0.1 for an engine alone with its server.
MAX_WAITING_THREADS = 0.3
# Idle fraction of a core at which one more thread is worth trying.
MIN_FREE_CORE = 0.8
# Time that cores have to be free before threads are added. It doubles each time that added threads are
# removed again, so that a program that starts and stops repeatedly costs less and less.
MIN_RAISE_DELAY_S, MAX_RAISE_DELAY_S = 2.0, 60.0

Reason = Literal[
    "not enough data",
    "threads wait for cores",
    "one thread is the minimum",
    "cores are free",
    "cores may stay free",
    "cores are in use",
    "all allowed cores are used",
]


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """Averages over a period in which steps were computed.

    waiting_threads: threads of this process that could run but had no core, or no quota.
    free_cores: idle cores among those that this process may use.
    """

    waiting_threads: float
    free_cores: float


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """The number of threads, and the state of the next decision. Times are on the clock of `now_s`.

    raise_delay_s: time that cores have to be free before threads are added. raised_s: when threads were
    added on trial; None if there is no trial. free_since_s: since when a core has been free; None if
    none is.
    """

    count: int
    raise_delay_s: float = MIN_RAISE_DELAY_S
    raised_s: float | None = None
    free_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The new number of threads, and the reason for it."""

    threads: ThreadCount
    reason: Reason


def decide(
    threads: ThreadCount, usage: CpuUsage | None, *, max_threads: int, now_s: float
) -> Decision:
    """Decide the next number of threads, from 1 to max_threads.

    usage: average since the last call; None: unknown.
    """
    if usage is None:
        return Decision(replace(threads, free_since_s=None), "not enough data")
    if usage.waiting_threads > MAX_WAITING_THREADS:
        return _lower(threads, usage.waiting_threads, now_s)
    threads = _end_trial(threads, now_s)
    if threads.count >= max_threads:
        return Decision(replace(threads, free_since_s=None), "all allowed cores are used")
    if usage.free_cores < MIN_FREE_CORE:
        return Decision(replace(threads, free_since_s=None), "cores are in use")
    since_s = now_s if threads.free_since_s is None else threads.free_since_s
    if now_s - since_s < threads.raise_delay_s:
        return Decision(replace(threads, free_since_s=since_s), "cores may stay free")
    num_free = math.floor(usage.free_cores + 1 - MIN_FREE_CORE)
    count = min(max_threads, threads.count + num_free)
    return Decision(ThreadCount(count, threads.raise_delay_s, raised_s=now_s), "cores are free")


def _lower(threads: ThreadCount, waiting_threads: float, now_s: float) -> Decision:
    if threads.count == 1:
        return Decision(replace(threads, free_since_s=None), "one thread is the minimum")
    raise_delay_s = _end_trial(threads, now_s).raise_delay_s
    if threads.raised_s is not None and not _has_kept_cores(threads, now_s):
        raise_delay_s = min(MAX_RAISE_DELAY_S, 2 * raise_delay_s)
    count = max(1, threads.count - max(1, round(waiting_threads)))
    return Decision(ThreadCount(count, raise_delay_s), "threads wait for cores")


def _end_trial(threads: ThreadCount, now_s: float) -> ThreadCount:
    """End the trial of added threads if they have kept their cores, and reset the raise delay."""
    if threads.raised_s is None or not _has_kept_cores(threads, now_s):
        return threads
    return replace(threads, raise_delay_s=MIN_RAISE_DELAY_S, raised_s=None)


def _has_kept_cores(threads: ThreadCount, now_s: float) -> bool:
    """Whether added threads have had their cores for at least raise_delay_s."""
    return threads.raised_s is not None and now_s - threads.raised_s >= threads.raise_delay_s
