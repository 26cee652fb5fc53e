"""Runs a step of benchmarks/device.py as if the CPU were a CUDA device.

    python -m tests.benchmarks.pretended_cuda STEP --out DIR [--items 8]

Lines that only a CUDA device reaches are executed at least once before one is there: events, streams,
graphs, memory statistics. Tensors asked for on `cuda` are made on the CPU, kernels run under Triton's
interpreter, and shapes are small. Times and memory are invented; a replayed graph computes again.
"""

import argparse
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch.overrides import TorchFunctionMode

MEMORY_BYTES = 2**30  # so that what is sized by the device's memory fits into this machine's
PROPERTIES = SimpleNamespace(
    name="NVIDIA H200", multi_processor_count=132, total_memory=MEMORY_BYTES, major=9, minor=0,
    shared_memory_per_block_optin=227 * 1024, L2_cache_size=60 * 2**20, warp_size=32,
    max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
)  # fmt: skip


class OnTheCpu(TorchFunctionMode):
    """Replaces CUDA devices by the CPU in the arguments of torch's functions."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        replaced = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        for ignored in ("pin_memory", "non_blocking"):
            replaced.pop(ignored, None)
        name = getattr(function, "__name__", "")
        if name in ("pin_memory", "cuda"):
            return args[0]
        return function(*map(_on_cpu, args), **replaced)


def _on_cpu(value: Any) -> Any:
    is_device = isinstance(value, torch.device) and value.type == "cuda"
    is_name = isinstance(value, str) and value.split(":")[0] == "cuda"
    return torch.device("cpu") if is_device or is_name else value


class Generator(torch.Generator):
    """A generator of the CPU for any device."""

    def __new__(cls, device: object = "cpu") -> "Generator":
        return super().__new__(cls, "cpu")


class Event:
    """An event that is complete at once."""

    def __init__(self, enable_timing: bool = False, **_: object) -> None:
        self.at_s = 0.0

    def record(self, stream: object = None) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None: ...
    def wait(self, stream: object = None) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        return max(1e-3, 1e3 * (end.at_s - self.at_s))


class Stream:
    """A stream whose work is done when it is submitted."""

    def __init__(self, *_: object, **__: object) -> None:
        self.cuda_stream = 0

    def wait_stream(self, other: object) -> None: ...
    def wait_event(self, event: object) -> None: ...
    def synchronize(self) -> None: ...
    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None: ...


class Graph:
    """A graph whose replay does nothing."""

    def replay(self) -> None: ...
    def reset(self) -> None: ...
    def pool(self) -> tuple[int, int]:
        return (0, 0)


@contextmanager
def entered(*_: object, **__: object) -> Iterator[None]:
    yield


def pretend() -> None:
    """Replace what this process knows of CUDA. It cannot be undone."""
    replacements: dict[str, Any] = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": lambda: None,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": lambda _: None,
        "get_device_properties": lambda *_: PROPERTIES, "get_device_name": lambda *_: "NVIDIA H200",
        "get_device_capability": lambda *_: (9, 0), "is_bf16_supported": lambda **_: True,
        "mem_get_info": lambda *_: (MEMORY_BYTES * 9 // 10, MEMORY_BYTES), "synchronize": lambda *_: None,
        "memory_allocated": lambda *_: 2**20, "max_memory_allocated": lambda *_: 2**21,
        "memory_reserved": lambda *_: 2**21, "max_memory_reserved": lambda *_: 2**21,
        "reset_peak_memory_stats": lambda *_: None, "empty_cache": lambda: None,
        "memory_stats": lambda *_: {}, "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(), "Stream": Stream, "stream": entered, "Event": Event,
        "CUDAGraph": Graph, "graph": entered, "graph_pool_handle": lambda: (0, 0),
        "device": entered, "utilization": lambda *_: 97, "device_memory_used": lambda *_: 2**21,
        "is_current_stream_capturing": lambda: False, "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
    }  # fmt: skip
    for name, value in replacements.items():
        setattr(torch.cuda, name, value)
    torch.Generator = Generator  # type: ignore[misc]
    torch.profiler.ProfilerActivity.CUDA = torch.profiler.ProfilerActivity.CPU
    run_thread = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with OnTheCpu():
            run_thread(self)

    threading.Thread.run = run  # type: ignore[method-assign]


def repeat_instead_of_replaying() -> None:
    """Let a recorded computation compute again, as no graph is captured."""
    from penstock_engine.kernels.cuda_graph import GraphRecorder
    from penstock_engine.kernels.operations import BY_DEVICE, TRITON

    record = GraphRecorder.__call__

    def recorded(self: GraphRecorder, compute: Callable[[], Any]) -> Callable[[], Any]:
        record(self, compute)
        return compute

    GraphRecorder.__call__ = recorded  # type: ignore[method-assign]
    BY_DEVICE["cpu"] = TRITON


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--items", type=int, help="run so many of the first ones; all without it")
    args = parser.parse_args()
    from benchmarks.gpu import results
    from benchmarks.gpu.bars import failures
    from benchmarks.gpu.child import machine_figures, records_of
    from benchmarks.gpu.context import Context, Item
    from benchmarks.gpu.startup.process import Phases, start
    from benchmarks.gpu.steps import BY_LETTER

    pretend()
    Context.is_small = property(lambda _: True)  # type: ignore[method-assign, assignment]
    args.out.mkdir(parents=True, exist_ok=True)
    context = Context("cuda", 0, math.inf, machine_figures(args.out))
    with OnTheCpu():
        repeat_instead_of_replaying()
        if args.step == "g":  # its items are processes of their own
            begin = partial(start, "0.6b", context, Phases(time.time()))
            items: Iterable[Item] = [Item("0.6b, start", begin)]
        else:
            items = import_module(BY_LETTER[args.step].module).items(context)
        records = list(records_of(args.step, islice(items, args.items), context, 0))
    for record in records:
        results.append(args.out, record)
    return 1 if failures(records) else 0


if __name__ == "__main__":
    sys.exit(main())
