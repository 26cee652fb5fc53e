"""Tests of attention's memory on a CPU: no step takes more than is counted."""

import pytest
from tests.support.engine.measured_bytes import measured_bytes

from penstock_engine.layers.gather_sizes import gathered_bytes

MIB = 2**20

ATTEND = """
import torch
from benchmarks.engine.sampling_cost import peak_of
from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.layers.attention import AttentionShape, QKV, Span
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache
ends, num_new, num_blocks = {ends}, {num_new}, 16 * 512
cache = KVCache.zeros((2, num_blocks + 1, 16, 2, 64), torch.int8, is_scaled=True, device="cpu")
cache.numbers.random_(-100, 100)
cache.scales.fill_(0.01)
spans = [
    Span(end - num_new, end, tuple(range(512 * row, 512 * row + 512))) for row, end in enumerate(ends)
]
slots = torch.arange(len(ends) * num_new)
heads = QKV(*(torch.randn(len(slots), size, 64) for size in (14, 2, 2)))
def attend():
    step = GatheredAttention(spans, slots, dtype=torch.float32, is_quantized=True)
    step(heads, cache, AttentionShape(0.1))
attend()
print(peak_of(attend))
"""


@pytest.mark.parametrize(
    ("ends", "num_new"), [([8192] * 16, 1), ([8192], 600)], ids=["tokens", "chunk"]
)
def test_attention_takes_no_more_than_is_counted(ends: list[int], num_new: int) -> None:
    """Over an int8 cache, which as float32 would be 128 MiB."""
    counted = gathered_bytes(max_num_seqs=16, num_visible_tokens=8192, token_bytes=2 * 2 * 64 * 4)
    measured = measured_bytes(ATTEND.format(ends=ends, num_new=num_new))
    assert counted / 4 < measured < counted + 4 * MIB
