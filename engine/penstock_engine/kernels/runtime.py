# mypy: allow-untyped-defs
"""Imports Triton if kernels can run, and stands in for it otherwise; helpers shared by kernels.

Without a CUDA device Triton is not imported: this saves a CPU engine start-up time and memory, and
lets it run without Triton installed. TRITON_INTERPRET=1 runs kernels on the CPU, for tests.
"""

import os
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

__all__ = [
    "dot",
    "jit",
    "loop_bound",
    "multiprocessors",
    "next_power_of_2",
    "sigmoid",
    "splits_to_fill",
    "tl",
]

PROGRAMS_PER_MULTIPROCESSOR = 2  # so that one waits for memory while the other computes
# The multiprocessors of an H100, assumed where there is no device, under the interpreter.
ASSUMED_MULTIPROCESSORS = 132

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if TYPE_CHECKING:
    import triton
    import triton.language as tl
else:
    triton = None
    tl = SimpleNamespace(constexpr=None)  # all that the definition of a kernel reads
    if IS_INTERPRETED or torch.cuda.is_available():
        try:
            import triton
            import triton.language as tl
        except ImportError:  # no Triton for this platform: its CUDA devices cannot be used
            triton = None


def jit(function: Any = None, *, varying: tuple[str, ...] = ()) -> Any:
    """triton.jit; returns the function unchanged if Triton is not imported.

    varying: names of integer arguments, and of pointers to integers, that differ from step to step.
    Otherwise Triton compiles a variant for the value 1, for multiples of 16 and for other values of
    each, in the middle of a user's request.
    """
    if function is None:
        return partial(jit, varying=varying)
    if triton is None:
        return function
    return triton.jit(
        function, do_not_specialize=varying, do_not_specialize_on_alignment=varying
    )  # fmt: skip


@jit
def _dot(a, b):
    return tl.dot(a, b, input_precision="ieee")


@jit
def _dot_interpreted(a, b):
    return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")


# Triton's interpreter would multiply the bits of bfloat16 numbers as if they were integers.
dot = _dot_interpreted if IS_INTERPRETED else _dot


@jit
def _loop_bound(bound):
    return bound


def _loop_bound_interpreted(bound):
    return int(bound.handle.data.item()) if isinstance(bound, tl.tensor) else int(bound)


# Triton 3.6's interpreter fails on a loop bound that was loaded from memory: numpy 2.4 does not convert
# arrays of one element to integers.
loop_bound = _loop_bound_interpreted if IS_INTERPRETED else _loop_bound


@jit
def sigmoid(x):
    """Sigmoid that never overflows, because Triton's interpreter warns about overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


@cache
def multiprocessors(device: torch.device) -> int:
    """Number of multiprocessors of a CUDA device; that of an H100 for the CPU."""
    if device.type != "cuda":
        return ASSUMED_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def splits_to_fill(num_programs: int, most_splits: int, device: torch.device) -> int:
    """Number of parts, a power of two, to split the work of each program into to fill a device."""
    wanted = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(device) // num_programs
    return next_power_of_2(max(1, min(wanted, most_splits)))
