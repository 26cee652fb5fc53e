"""Compiles kernels ahead, in parallel processes, into Triton's cache on the disk.

Each variant of a kernel takes about a second to compile, and a check or a sweep launches hundreds. Here
every process launches some of them with tensors on the CPU, for a device that is only named: nothing
runs, and no process touches the GPU. A later launch finds the code in the cache, because the key of the
cache consists of the source, the target, the options, the types, and which pointers and integers are
multiples of 16.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from benchmarks.gpu.context import Context, Record
from tests.support.engine.named_device import NamedDevice, launching_for

Launch = Callable[[], object]
COMPILE_SHARE = 0.4  # of the time that a step has left, at most, to compile ahead
MAX_REASONS = 3  # failed launches of a process whose reasons are reported


def present_device() -> NamedDevice:
    """The CUDA device of this process."""
    properties: Any = torch.cuda.get_device_properties(0)
    return NamedDevice(
        10 * properties.major + properties.minor,
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin // 1024,
    )


def compile_for(
    context: Context, launches: Sequence[Launch], *, share: float = COMPILE_SHARE
) -> Record:
    """Compile ahead for the device of a context, unless the interpreter runs the kernels.

    share: of the time that is left, at most.
    """
    if context.is_small:
        return {"compiled": 0}
    return compile_ahead(launches, present_device(), limit_s=share * context.time_left_s())


def compile_ahead(
    launches: Sequence[Launch], device: NamedDevice, *, limit_s: float,
    num_processes: int | None = None,
) -> Record:  # fmt: skip
    """Compile all kernels that the launches launch, for at most limit_s seconds.

    launches: call kernels with tensors on the CPU, whose contents do not matter. Returns the numbers of
    launches that were made, of variants compiled, and of launches that failed, with some reasons. These
    need no handling, because the launch will fail again on the device.
    """
    started_s = time.monotonic()
    context = get_context("fork")
    counter = context.Value("i", 0)
    num_processes = num_processes or len(os.sched_getaffinity(0))
    workers = []
    for _ in range(num_processes):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(
            target=_work,
            args=(launches, device, counter, started_s + limit_s, send),
            daemon=True,
        )
        process.start()
        send.close()
        workers.append((process, receive))
    figures = {"launches": 0, "compiled": 0, "failed": 0, "died": 0}
    reasons: list[str] = []
    for process, receive in workers:
        outcome = _outcome(receive, started_s + limit_s + 5 - time.monotonic())
        if outcome is None:
            figures["died"] += 1
        else:
            reasons += outcome.pop("reasons")
            figures = {name: value + outcome.get(name, 0) for name, value in figures.items()}
        process.kill()
        process.join()
    return {**figures, "compile_s": time.monotonic() - started_s, "reasons": reasons[:MAX_REASONS]}


def _outcome(receive: Connection, timeout_s: float) -> Record | None:
    """The report of a worker; None if it died or is late."""
    try:
        return receive.recv() if receive.poll(max(0.0, timeout_s)) else None
    except EOFError:
        return None


def _work(
    launches: Sequence[Launch], device: NamedDevice, counter: Any, ends_s: float, send: Connection
) -> None:  # fmt: skip
    """Make launches, the next one that no other process has made, until none or no time is left."""
    torch.set_num_threads(1)
    figures: Record = {"launches": 0, "failed": 0, "reasons": []}
    with compiling_only(device), counted_compilations() as compiled:
        while time.monotonic() < ends_s:
            with counter.get_lock():
                index = counter.value
                counter.value += 1
            if index >= len(launches):
                break
            figures["launches"] += 1
            try:
                launches[index]()
            except Exception as error:  # noqa: BLE001 - the others still count
                figures["failed"] += 1
                if len(figures["reasons"]) < MAX_REASONS:
                    figures["reasons"].append(f"{type(error).__name__}: {error}"[:300])
        send.send({**figures, "compiled": len(compiled)})


@contextmanager
def compiling_only(device: NamedDevice) -> Iterator[None]:
    """Launches compile for a named device, and nothing runs. The process can launch nothing afterwards."""

    def compile_kernel(kernel: Any, grid: object) -> Callable[..., object]:
        return partial(kernel.run, grid=grid, warmup=True)

    with launching_for(device, compile_kernel):
        yield


@contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """The names of the kernels that are compiled in the block, rather than found in the cache."""
    from triton import knobs

    compiled: list[str] = []

    def listen(*, src: Any, cache_hit: bool, **others: Any) -> None:
        if not cache_hit:
            compiled.append(src.name)

    previous = knobs.compilation.listener
    knobs.compilation.listener = listen
    try:
        yield compiled
    finally:
        knobs.compilation.listener = previous
