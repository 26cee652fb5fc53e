"""How many threads compute a step on the CPU, so that each has a core of its own.

OpenMP threads spin while they wait for the slowest of them. If one has no core, because another
program uses it, all the others wait for it: two threads on two cores, one of which is busy, compute a
tenth of what one thread does. So threads are given up as soon as they wait for cores, and taken back
when cores have been free for a while.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

# Threads that wait for a core, on average, above which there are too many. Two threads and one other
# busy program on two cores: 0.67. An engine alone, with its server's threads: less than 0.1.
MAX_WAITING_THREADS = 0.3
# Of one core: what has to be free before one more thread is worth trying.
MIN_FREE_CORE = 0.8
# How long cores have to be free before threads are added. Doubles with each time that these had to be
# given up again, so that a program that comes and goes costs less and less.
MIN_PATIENCE_S, MAX_PATIENCE_S = 2.0, 60.0

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
    """The number of threads and what it was learned from. Times are on the clock of `now_s`.

    raised_s: when threads were added; None if they have held since, or were never.
    free_since_s: since when a core has been free; None if none is.
    """

    count: int
    patience_s: float = MIN_PATIENCE_S
    raised_s: float | None = None
    free_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The number of threads from now on, and why."""

    threads: ThreadCount
    reason: Reason


def decide(
    threads: ThreadCount, usage: CpuUsage | None, *, max_threads: int, now_s: float
) -> Decision:
    """The next number of threads, from 1 to max_threads. usage: since the last call; None: unknown."""
    if usage is None:
        return Decision(replace(threads, free_since_s=None), "not enough data")
    if usage.waiting_threads > MAX_WAITING_THREADS:
        return _lower(threads, usage.waiting_threads, now_s)
    threads = _without_trial(threads, now_s)
    if threads.count >= max_threads:
        return Decision(replace(threads, free_since_s=None), "all allowed cores are used")
    if usage.free_cores < MIN_FREE_CORE:
        return Decision(replace(threads, free_since_s=None), "cores are in use")
    since_s = now_s if threads.free_since_s is None else threads.free_since_s
    if now_s - since_s < threads.patience_s:
        return Decision(replace(threads, free_since_s=since_s), "cores may stay free")
    num_free = math.floor(usage.free_cores + 1 - MIN_FREE_CORE)
    count = min(max_threads, threads.count + num_free)
    return Decision(ThreadCount(count, threads.patience_s, raised_s=now_s), "cores are free")


def _lower(threads: ThreadCount, waiting_threads: float, now_s: float) -> Decision:
    if threads.count == 1:
        return Decision(replace(threads, free_since_s=None), "one thread is the minimum")
    patience_s = _without_trial(threads, now_s).patience_s
    if threads.raised_s is not None and not _has_held(threads, now_s):
        patience_s = min(MAX_PATIENCE_S, 2 * patience_s)
    count = max(1, threads.count - max(1, round(waiting_threads)))
    return Decision(ThreadCount(count, patience_s), "threads wait for cores")


def _without_trial(threads: ThreadCount, now_s: float) -> ThreadCount:
    """With the shortest patience, once added threads have held."""
    if threads.raised_s is None or not _has_held(threads, now_s):
        return threads
    return replace(threads, patience_s=MIN_PATIENCE_S, raised_s=None)


def _has_held(threads: ThreadCount, now_s: float) -> bool:
    """Whether added threads have had their cores for as long as these were waited for."""
    return threads.raised_s is not None and now_s - threads.raised_s >= threads.patience_s
