"""Measurements of paged attention in benchmarks/device.py, as far as they need no GPU."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from benchmarks.gpu import attention
from benchmarks.gpu.context import Context
from benchmarks.gpu.meters.peak import flop_rates
from benchmarks.gpu.workloads.attention_inputs import (
    Heads,
    Inputs,
    Pool,
    PoolStore,
    make_inputs,
    placeholder_inputs,
    relative_error,
)
from benchmarks.gpu.workloads.attention_tiles import tiles_to_try

from penstock_engine.kernels.attention_tile import Tile

HEADS = Heads(2, 3, 16)


def pool_of(case: attention.Case, num_blocks: int) -> Pool:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Pool.random(num_blocks, HEADS, case.cache, "cpu")


def attend(inputs: Inputs, batch: int) -> torch.Tensor:
    """Causal attention over the pages of a batch, by torch."""
    rows = []
    for index, length in enumerate(inputs.case.lengths):
        pages = inputs.batches[batch].block_tables[index, : -(-length // 16)].long()
        keys, values = (
            inputs.pool.numbers[kind, pages].flatten(0, 1)[:length].float().transpose(0, 1)
            for kind in (0, 1)
        )
        count = inputs.case.num_queries
        query = inputs.query[index * count : (index + 1) * count].float().transpose(0, 1)
        mask = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, enable_gqa=True
        )
        rows.append(attended.transpose(0, 1))
    return torch.cat(rows)


@pytest.mark.parametrize(
    "case",
    [attention.Case("decode", (40, 16, 5)), attention.Case("chunks", (90, 80), num_queries=70)],
)
def test_attention_is_compared_with_attention_in_float32(case: attention.Case) -> None:
    inputs = make_inputs(case, HEADS, pool_of(case, 40))
    assert len(inputs.batches) > 1
    pages = [set(batch.block_tables.flatten().tolist()) for batch in inputs.batches[:2]]
    assert pages[0] & pages[1] <= {0}  # the padding
    output = attend(inputs, 1)
    assert relative_error(output, inputs, inputs.batches[1]) < 1e-5
    assert relative_error(output, inputs, inputs.batches[0]) > 0.1
    output[-1, 0] += 1.0
    assert relative_error(output, inputs, inputs.batches[1]) > 0.01
    output[0] = torch.nan
    assert math.isnan(relative_error(output, inputs, inputs.batches[1]))


def test_work_of_attention_is_counted() -> None:
    decode = attention.Case("decode", (32, 20))
    assert decode.num_blocks == 4
    assert decode.kv_bytes(HEADS) == 2 * 52 * 2 * 16 * 2
    assert decode.moved_bytes(HEADS) == decode.kv_bytes(HEADS) + 4 * 4 + 2 * 2 * 2 * 6 * 16
    assert replace(decode, cache="int8").kv_bytes(HEADS) == 2 * 52 * 2 * (16 + 4)
    chunk = attention.Case("chunk", (10,), num_queries=4)
    assert chunk.flops(HEADS) == 4 * 6 * 16 * (7 + 8 + 9 + 10)


def test_the_cases_of_the_bar_are_measured_first() -> None:
    context = Context("cuda", 0, 0.0, {"memory_bytes": 139 * 2**30})
    names = [item.name for item in attention.items(context)]
    assert names[:2] == ["compile ahead", "decode 32 x 2048"]
    assert names.index("decode 256 x 32768") < names.index("decode 1 x 512")
    assert len(set(names)) == len(names)
    assert not any(name.startswith("prompt 1 x 2048 after 6144, torch") for name in names)
    smaller = replace(context, machine={"memory_bytes": 80 * 2**30})
    assert "decode 256 x 32768" not in [item.name for item in attention.items(smaller)]


def test_a_pool_holds_the_largest_case_of_its_kind() -> None:
    cases = [attention.Case("a", (64,) * 3), attention.Case("b", (32,), cache="int8")]
    block_bytes = 2 * 2 * 16 * 2 * 16
    assert attention.pool_blocks(cases, HEADS, 0) == {"same": 12, "int8": 2}
    assert attention.pool_blocks(cases, HEADS, 20 * block_bytes) == {"same": 20, "int8": 20}


def test_rates_are_shares_of_the_machine() -> None:
    machine = {"copy_bytes_per_s": 1e6, "product_flops": 2e6, "gpu": "NVIDIA H200"}
    context = Context("cpu", 0, 0.0, machine)
    decode = attention.Case("decode", (32, 20))
    figures = attention.rates(decode, HEADS, 0.1, context)
    assert figures["bandwidth_share"] == pytest.approx(decode.moved_bytes(HEADS) / 1e5)
    chunk = attention.Case("chunk", (10,), num_queries=4)
    figures = attention.rates(chunk, HEADS, 0.1, context)
    assert figures["product_share"] == pytest.approx(chunk.flops(HEADS) / 2e5)
    assert figures["peak_share"] == pytest.approx(chunk.flops(HEADS) / 0.1 / 989e12)


def test_an_unknown_gpu_is_compared_with_its_measured_product() -> None:
    def peak_share(gpu: str) -> float:
        return flop_rates(1e12, 2.0, {"gpu": gpu, "product_flops": 1e12})["peak_share"]

    assert peak_share("NVIDIA A100-SXM4-80GB") == pytest.approx(0.5 / 312)
    assert peak_share("NVIDIA H100 PCIe") == pytest.approx(0.5 / 756)
    assert peak_share("another") == 0.5
    assert flop_rates(1e12, 2.0, {}) == {"flops": 1e12, "flops_per_s": 5e11}


def test_tiles_near_the_first_choice_are_tried_first() -> None:
    tiles = tiles_to_try(1, is_small=False)
    assert tiles[0] == Tile(16, 64, 4, 4)
    assert {tiles[1], tiles[2], tiles[3]} == {
        Tile(16, 64, 4, 3), Tile(16, 64, 8, 4), Tile(16, 32, 4, 4),
    }  # fmt: skip
    assert len({*tiles}) == len(tiles) == 45
    assert {tile.block_rows for tile in tiles_to_try(2, is_small=False)} == {64, 128}


def test_compiling_needs_inputs_of_the_same_shapes_and_types() -> None:
    case = attention.Case("decode", (40, 16), cache="int8")
    placed, made = placeholder_inputs(case, HEADS), make_inputs(case, HEADS, pool_of(case, 9))
    for one in (placed, made):
        assert (one.query.shape, one.query.dtype) == ((2, 6, 16), torch.bfloat16)
        assert one.pool.numbers.dtype == torch.int8
        assert one.batches[0].block_tables.shape == (2, 3)
        assert one.batches[0].max_length == 40_960


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_backend_without_a_kernel_is_told_from_a_lost_device(
    monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    def launch() -> None:
        raise RuntimeError("No available kernel.\n")

    def synchronize() -> None:
        if is_lost:
            raise RuntimeError("CUDA error")

    case = attention.Case("decode", (16,))
    monkeypatch.setattr(attention, "torch_attention", lambda *arguments: [launch])
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    store = PoolStore({"same": 1}, HEADS, "cpu")
    run = partial(
        attention.measure_torch, case, HEADS, store, Context("cuda", 0, 0.0), backend="flash"
    )
    if is_lost:
        with pytest.raises(RuntimeError, match="CUDA error"):
            run()
    else:
        assert run() == {"not_supported": "RuntimeError: No available kernel."}
