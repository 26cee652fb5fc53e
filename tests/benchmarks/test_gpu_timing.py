"""Timing of benchmarks/device.py on a stand-in for a GPU, whose clock advances by what works take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from benchmarks.gpu.timing import seconds_back_to_back, seconds_each, seconds_per_launch


class FakeGpu:
    """The part of torch.cuda that timing needs. It runs works at once; now_s is the clock of its events."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.num_replays = 0
        self.graph_works: list[Callable[[], object]] = []
        self.is_capturing = False
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                assert not gpu.is_capturing
                self.at_s = gpu.now_s

            def elapsed_time(self, end: "Event") -> float:
                return 1e3 * (end.at_s - self.at_s)

        class CUDAGraph:
            def replay(self) -> None:
                gpu.num_replays += 1
                for work in gpu.graph_works:
                    work()

        self.names: dict[str, Any] = {
            "Event": Event, "CUDAGraph": CUDAGraph, "graph": self.capture,
            "Stream": lambda: type("Stream", (), {"wait_stream": lambda self, other: None})(),
            "stream": lambda stream: nullcontext(), "current_stream": lambda: None,
            "synchronize": lambda: None,
        }  # fmt: skip

    @contextmanager
    def capture(self, graph: object, *, stream: object) -> Iterator[None]:
        self.is_capturing = True
        yield
        self.is_capturing = False

    def work(self, seconds: float) -> Callable[[], None]:
        """Work that takes a time on the device; while a graph is captured, it becomes a part of it."""

        def run() -> None:
            if self.is_capturing:
                self.graph_works.append(run)
            else:
                self.now_s += seconds

        return run


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    for name, value in fake.names.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return fake


def test_launches_are_timed_in_a_graph(gpu: FakeGpu) -> None:
    works = [gpu.work(0.001), gpu.work(0.002)]
    assert seconds_per_launch(works, "cuda") == pytest.approx(0.0015)
    assert gpu.graph_works == works
    assert gpu.num_replays == 2 + 10  # 30 ms


def test_long_works_are_replayed_once(gpu: FakeGpu) -> None:
    assert seconds_per_launch([gpu.work(1.0)], "cuda") == pytest.approx(1.0)
    assert gpu.num_replays == 3


def test_works_are_timed_one_by_one_or_together(gpu: FakeGpu) -> None:
    assert seconds_each(gpu.work(0.25), "cuda") == pytest.approx(0.25)
    assert seconds_back_to_back(gpu.work(0.25), "cuda") == pytest.approx(0.25)
