"""Timing of work on a device."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

WARM_UPS, REPEATS = 3, 10
REPLAYED_S, MAX_REPLAYS = 0.03, 50  # of a recorded graph

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
    return _seconds_of(work, repeats)


def seconds_per_launch(works: Sequence[Work], device: str) -> float:
    """Mean device time of some works, which are recorded as one CUDA graph and replayed.

    So the host's time to launch them does not count. Works that read different memory keep each other's
    out of the device's cache.
    """
    if device == "cpu":
        return statistics.mean(_seconds_on_the_clock(work) for work in works)
    replay = _recorded(works)
    replay()
    seconds = _seconds_of(replay, 1)
    repeats = max(1, min(MAX_REPLAYS, round(REPLAYED_S / seconds)))
    return _seconds_of(replay, repeats) / len(works)


def _recorded(works: Sequence[Work]) -> Work:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for work in works:  # compiles kernels and loads libraries, which cannot be recorded
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for work in works:
            work()
    return graph.replay


def _seconds_of(work: Work, repeats: int) -> float:
    """Mean time of some work by the device's events."""
    start, end = timing_event(), timing_event()
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats


def check_device(device: str) -> None:
    """Wait for the device. Raises RuntimeError after a fault that ends its use by this process."""
    if device == "cuda":
        torch.cuda.synchronize()


def timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds_on_the_clock(work: Work) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
