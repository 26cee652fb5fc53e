"""How blocks lie in the host's memory. What is copied there and back, test_moves.py checks."""

import tracemalloc
from typing import Any

import pytest
import torch
from tests.support.engine.measured_bytes import measured_bytes
from torch.utils._python_dispatch import TorchDispatchMode

from penstock_engine.layers.host_blocks import HostBlocks
from penstock_engine.layers.kv_cache import KVCache

NUM_LAYERS, NUM_BLOCKS = 3, 5


class Copies(TorchDispatchMode):
    """Targets and sources of all copies inside."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            self.tensors += args[:2]
        return result


def caches(dtype: torch.dtype, shape: tuple[int, int, int]) -> list[torch.Tensor]:
    """Parts of all layers. shape: of one block."""
    layers = [
        KVCache.zeros(
            (2, NUM_BLOCKS, *shape), dtype, is_scaled=dtype != torch.float32, device="cpu"
        )
        for _ in range(NUM_LAYERS)
    ]
    parts = [part for layer in layers for part in layer.parts]
    for part in parts:
        part.view(torch.uint8).random_(0, 120)
    return parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(16, 2, 64), (3, 1, 6)])
def test_blocks_come_back_and_all_copies_are_of_contiguous_memory(
    dtype: torch.dtype, shape: tuple[int, int, int]
) -> None:
    parts = caches(dtype, shape)
    before = [part.clone() for part in parts]
    blocks = HostBlocks(parts, 4)
    with Copies() as copies:
        blocks.save(3, 1)
        blocks.save(0, 2)
        for part in parts:
            part.view(torch.uint8).zero_()
        blocks.restore(1, 4)
        blocks.restore(2, 3)
    assert all(tensor.is_contiguous() for tensor in copies.tensors)
    assert len(copies.tensors) == 2 * 4 * 2 * len(parts)
    for part, old in zip(parts, before, strict=True):
        assert torch.equal(part[:, 4].float(), old[:, 3].float())
        assert torch.equal(part[:, 3].float(), old[:, 0].float())


@pytest.mark.parametrize("num_slots", [1, 9, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_no_more_memory_is_taken_than_the_blocks_have(num_slots: int, dtype: torch.dtype) -> None:
    """The size is not rounded up, such as to the next power of two."""
    parts = caches(dtype, (16, 2, 64))
    block_bytes = sum(2 * part[0, 0].nbytes for part in parts)
    tracemalloc.start()  # numpy reports to it, and its memory is what blocks lie in
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        blocks = HostBlocks(parts, num_slots)
        allocated_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert blocks is not None
    slots_bytes = num_slots * block_bytes
    assert slots_bytes <= allocated_bytes < slots_bytes + 32 * 1024


ALLOCATE = """
import torch
from penstock_engine.machine.device import resident_bytes
from penstock_engine.layers.host_blocks import HostBlocks
from penstock_engine.layers.kv_cache import KVCache
before = resident_bytes()
cache = KVCache.zeros((2, 16384, 16, 2, 64), torch.{dtype}, is_scaled={is_scaled}, device="cpu")
blocks = HostBlocks(cache.parts, 4096)
cache.numbers[:, 5].fill_(1)
blocks.save(5, 7)
blocks.restore(7, 8)
assert (cache.numbers[:, 8].float() == 1).all() and not cache.numbers[:, 9:200].float().any()
print(resident_bytes() - before)
"""


@pytest.mark.parametrize(
    ("dtype", "is_scaled"), [("float32", False), ("bfloat16", False), ("float8_e4m3fn", True)]
)
def test_blocks_take_memory_when_they_are_used(dtype: str, is_scaled: bool) -> None:
    """All of them are from 68 to 320 MiB; the code of the operations takes some MiB itself."""
    assert measured_bytes(ALLOCATE.format(dtype=dtype, is_scaled=is_scaled)) < 40 * 2**20
