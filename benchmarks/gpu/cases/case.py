"""Cases of kernel checks: how one is prepared, run and judged."""

import random
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from benchmarks.gpu.cases.inputs import Inputs
from tests.support.engine.covering_array import covering_array
from torch.utils._python_dispatch import TorchDispatchMode

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs of a case. launch: runs the kernel and returns its outputs; it waits for nothing.

    differences: describes how the outputs differ from the reference's; empty if they do not.
    """

    launch: Callable[[], Any]
    differences: Callable[[Any], list[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """A launch of a kernel that is compared with its reference. name: unique within the kind."""

    kind: str
    name: str
    prepare: Callable[[Inputs], Prepared]

    def inputs(self, device: str, *, is_empty: bool = False) -> Inputs:
        """Inputs whose random numbers depend on the name alone."""
        seed = zlib.crc32(f"{self.kind} {self.name}".encode())
        return Inputs(device, seed, is_empty=is_empty)

    def launch_empty(self) -> None:
        """Launch with empty tensors on the CPU, to compile, or to see which kernels are launched."""
        self.prepare(self.inputs("cpu", is_empty=True)).launch()

    def differences(self, device: str) -> list[str]:
        """Run the kernel and its reference, and describe how they differ. New memory is filled with NaN."""
        inputs = self.inputs(device)
        prepared = self.prepare(inputs)
        with PoisonedMemory():  # type: ignore[no-untyped-call]
            outputs = prepared.launch()
        wrong = prepared.differences(outputs)
        return [*wrong, "memory beside the rows was written"] if inputs.spilled() else wrong


@dataclass(frozen=True, slots=True)
class Kind:
    """Cases of one kind: a covering array of the values of its factors."""

    name: str
    factors: Mapping[str, tuple[Any, ...]]
    prepare: Callable[[Row, Inputs], Prepared]
    is_allowed: Callable[[Row], bool] = lambda row: True

    def cases(self, seed: int) -> list[Case]:
        rows = covering_array(self.factors, self.is_allowed, random.Random(seed))
        return [Case(self.name, name_of(row), partial(self.prepare, row)) for row in rows]


def name_of(row: Row) -> str:
    return " ".join(f"{name}={str(row[name]).removeprefix('torch.')}" for name in sorted(row))


class PoisonedMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fills new memory with NaN, or with the largest integer, so that a read of it shows in the results."""

    NEW = frozenset(
        (
            torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default,
            torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty.default,
            torch.ops.aten.new_empty_strided.default,
        )
    )  # fmt: skip

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        result: torch.Tensor = func(*args, **(kwargs or {}))
        return poison(result) if func in self.NEW else result


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with NaN, or with the largest integer of its type."""
    if tensor.dtype == torch.float8_e4m3fn:
        tensor.view(torch.uint8).fill_(0x7F)
    elif tensor.is_floating_point():
        tensor.fill_(torch.nan)
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max)
    return tensor


def compare(what: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> list[str]:
    """The difference of two tensors beyond a tolerance, absolute and relative; empty if there is none.

    Equal infinities are equal; NaN differs from everything.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return [
            f"{what} is {actual.dtype} {list(actual.shape)},"
            f" not {expected.dtype} {list(expected.shape)}"
        ]
    a, b = actual.float(), expected.float()
    is_wrong = ~torch.isclose(a, b, atol=tolerance, rtol=tolerance)
    num_wrong = int(is_wrong.sum())
    if not num_wrong:
        return []
    at = int(is_wrong.flatten().nonzero()[0])
    worst = (a - b).abs()[is_wrong].nan_to_num(torch.inf).max().item()
    return [
        f"{what}: {num_wrong} of {a.numel()} differ, by up to {worst:.2g}; the first at {at}:"
        f" {a.flatten()[at].item():.5g}, not {b.flatten()[at].item():.5g}"
    ]


def compare_bits(what: str, actual: torch.Tensor, expected: torch.Tensor) -> list[str]:
    """The number of elements whose bytes differ; empty if there are none."""
    a, b = (t.contiguous().view(torch.uint8) for t in (actual, expected))
    num_wrong = int((a != b).sum()) if a.shape == b.shape else -1
    return [] if num_wrong == 0 else [f"{what}: {num_wrong} of {a.numel()} bytes differ"]


@contextmanager
def watched(seconds: float, expire: Callable[[], None]) -> Iterator[None]:
    """Call `expire` in a thread if the block has not ended after so many seconds."""
    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
