"""Timing of work on a device."""

import statistics
import time
from collections.abc import Callable

import torch

WARM_UPS, REPEATS = 3, 10

Work = Callable[[], object]


def seconds_each(work: Work, device: str, *, repeats: int = REPEATS) -> float:
    """Median time of some work in seconds, by the device's own events; by the clock on the CPU."""
    if device == "cpu":
        return statistics.median(_seconds_on_the_clock(work) for _ in range(2))
    for _ in range(WARM_UPS):
        work()
    events = [(timing_event(), timing_event()) for _ in range(repeats)]
    for start, end in events:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(float(start.elapsed_time(end)) for start, end in events) / 1e3


def seconds_back_to_back(work: Work, device: str, *, repeats: int = REPEATS) -> float:
    """Mean time of some work that is launched again and again: the larger of the device's time and the
    host's."""
    if device == "cpu":
        return _seconds_on_the_clock(work)
    for _ in range(WARM_UPS):
        work()
    start, end = timing_event(), timing_event()
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats


def timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds_on_the_clock(work: Work) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
