"""Kernels move hardly more bytes than their inputs and outputs have, and multiply little padding.

Decoding waits for the memory: there the bytes are the time. The minimum counts each input and output
once. What is read again is small, or comes from a cache: the limits say how much.
"""

from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from tests.support.engine.kernel_traffic import Traffic, counting_traffic

from penstock_engine.kernels.fused_add_norm import fused_add_norm
from penstock_engine.kernels.gumbel_argmax import gumbel_argmax
from penstock_engine.kernels.int4_linear import int4_linear
from penstock_engine.kernels.int8_linear import int8_linear
from penstock_engine.kernels.kv_write import kv_write
from penstock_engine.kernels.moe import moe
from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.kernels.rope import rope
from penstock_engine.kernels.silu_mul import silu_mul

KV_HEADS, GROUP, HEAD_DIM, BLOCK_SIZE = 2, 4, 64, 16
HALF = torch.bfloat16
QUERIES_AT_ONCE = 128 // GROUP  # of a program's tile: they share the loads of their keys


def traffic_of(launch: Callable[[], object]) -> Traffic:
    with counting_traffic() as traffic:
        launch()
    return traffic


def num_bytes(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def random(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def attend(
    device: str, lengths: list[int], queries: list[int], cache_dtype: torch.dtype = HALF
) -> tuple[Traffic, int, int]:
    """Attend. Returns the traffic, and the fewest bytes and FLOPs."""
    counts = [-(-length // BLOCK_SIZE) for length in lengths]
    tables = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    for row, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
        tables[row, :count] = torch.arange(end - count, end)
    shape = (2, sum(counts), BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    is_scaled = cache_dtype != HALF
    cache = torch.ones(shape).to(cache_dtype)
    scales = torch.ones(shape[:-1]) if is_scaled else None
    query = random(sum(queries), KV_HEADS * GROUP, HEAD_DIM)
    starts = torch.tensor([0, *accumulate(queries)], dtype=torch.int32)
    batch = PagedBatch(
        tables.to(device),
        None if max(queries) == 1 else starts.to(device),
        torch.tensor(lengths, dtype=torch.int32, device=device),
        max(queries),
        max(lengths),
    )
    traffic = traffic_of(
        lambda: paged_attention(query.to(device), cache.to(device), batch, 0.1, kv_scales=scales)
    )
    per_token = 2 * KV_HEADS * (HEAD_DIM * cache_dtype.itemsize + (4 if is_scaled else 0))
    num_keys = sum(
        min(length, length - n + first + QUERIES_AT_ONCE)
        for length, n in zip(lengths, queries, strict=True)
        for first in range(0, n, QUERIES_AT_ONCE)
    )
    fewest_bytes = num_keys * per_token + 2 * num_bytes(query)
    pairs = sum(n * (2 * length - n + 1) // 2 for length, n in zip(lengths, queries, strict=True))
    return traffic, fewest_bytes, 4 * pairs * KV_HEADS * GROUP * HEAD_DIM


@pytest.mark.parametrize(
    "lengths",
    [[2048], [700, 700, 700, 700], [3000, 40, 40, 40], [300] * 16],
    ids=["one", "four", "uneven", "many"],
)
@pytest.mark.parametrize("cache_dtype", [HALF, torch.int8])
def test_decoding_reads_each_key_and_value_once(
    lengths: list[int], cache_dtype: torch.dtype, device: str
) -> None:
    """Block tables, work items and the partial sums of short splits take at most an eighth more.

    A quantized cache has half the bytes, so that they weigh twice as much.
    """
    traffic, fewest_bytes, _ = attend(device, lengths, [1] * len(lengths), cache_dtype)
    limit = 1.125 if cache_dtype == HALF else 1.25
    assert fewest_bytes <= traffic.total_bytes < limit * fewest_bytes


@pytest.mark.parametrize(("lengths", "queries"), [([512], [512]), ([2000, 300], [256, 200])])
def test_a_chunk_reads_keys_once_for_a_block_of_queries(
    lengths: list[int], queries: list[int], device: str
) -> None:
    """Partial sums of splits are more, and products compute pairs above the diagonal of a block too."""
    traffic, fewest_bytes, fewest_flops = attend(device, lengths, queries)
    assert traffic.total_bytes < 1.3 * fewest_bytes
    assert fewest_flops <= traffic.product_flops < 1.2 * fewest_flops


def test_row_kernels_read_and_write_once(device: str) -> None:
    """The weight of a norm is read by each program; the angles of a rotation by each kind of head."""
    x, residual, weight = random(64, 2048), random(64, 2048), random(2048)
    norm = traffic_of(lambda: fused_add_norm(x, residual, weight, 1e-6))
    assert norm.total_bytes == 2 * num_bytes(x, residual) + 64 * num_bytes(weight)
    gate = traffic_of(lambda: silu_mul(x))
    assert gate.total_bytes == num_bytes(x) * 3 // 2
    q, k, angles = random(64, 8, 64), random(64, 2, 64), random(64, 32)
    rotation = traffic_of(lambda: rope(q, k, angles, angles))
    assert rotation.total_bytes == 2 * num_bytes(q, k, angles)
    cache = torch.zeros(2, 8, 16, 2, 64, dtype=HALF)
    slots = torch.arange(64)
    write = traffic_of(lambda: kv_write(k, k, cache, slots))
    assert write.total_bytes == 4 * num_bytes(k) + num_bytes(slots)


@pytest.mark.parametrize("num_rows", [1, 16, 64])
def test_products_read_quantized_weights_once(num_rows: int, device: str) -> None:
    """The rows are read by each block of outputs, from the cache; partial sums of splits are float32."""
    x = random(num_rows, 1024)
    codes, scales = torch.ones(512, 1024, dtype=torch.int8), random(512, 1)
    rows_again = 512 // 64 * num_bytes(x)
    int8 = traffic_of(lambda: int8_linear(x, codes, scales, 1024))
    splits = 2 * num_rows * 512 * 4
    assert int8.total_bytes <= num_bytes(codes, scales) * 1.02 + rows_again + splits
    packed, factors = torch.ones(8, 1024, 32, dtype=torch.uint8), random(8, 512, 2)
    int4 = traffic_of(lambda: int4_linear(x, packed, factors, 512))
    assert int4.total_bytes <= num_bytes(packed, factors) * 1.02 + rows_again + splits


def test_experts_read_the_weights_that_are_chosen(device: str) -> None:
    x, gate_up, down = random(4, 128), random(8, 128, 128), random(8, 128, 64)
    expert_ids = torch.tensor([[0, 3]] * 4, dtype=torch.int32)
    traffic = traffic_of(lambda: moe(x, gate_up, down, expert_ids, random(4, 2), silu_mul))
    assert traffic.total_bytes < 1.5 * num_bytes(gate_up[:2], down[:2])


def test_sampling_reads_the_logits_once(device: str) -> None:
    logits = random(3, 10_000, dtype=torch.float32)
    flags, numbers = torch.ones(3, dtype=torch.bool), torch.arange(3)
    traffic = traffic_of(lambda: gumbel_argmax(logits, flags, numbers, numbers))
    assert num_bytes(logits) <= traffic.total_bytes < 1.01 * num_bytes(logits)
