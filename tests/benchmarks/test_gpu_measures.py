"""Parts of the measurements of benchmarks/device.py that need no GPU."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from benchmarks.gpu import attention, prefill
from benchmarks.gpu.attention_inputs import Heads, Inputs, Pool, make_inputs, relative_error
from benchmarks.gpu.context import Context
from benchmarks.gpu.decode import CASES, Case, items
from benchmarks.gpu.decode_load import DecodeLoad, run_steps
from benchmarks.gpu.kernel_profile import Launch, describe_launches
from benchmarks.gpu.models import LoadedModel, ModelStore, parse_shape, random_decoder
from benchmarks.gpu.peak import peak_flops
from benchmarks.gpu.shapes import SHAPES

from penstock_engine.core.step import PENDING_TOKEN, SequenceOutput, Step
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import model_parameters
from penstock_engine.models.step_cost import StepCostModel


def num_parameters(config: ModelConfig) -> dict[str, int]:
    return {name: torch.Size(shape).numel() for name, shape in model_parameters(config)}


@pytest.mark.parametrize(("shape", "billions"), [("0.6b", 0.6), ("8b", 8.0), ("moe-3b", 3.0)])
def test_the_shapes_have_the_sizes_of_their_names(shape: str, billions: float) -> None:
    config = parse_shape(shape, is_small=False)
    total = sum(num_parameters(config).values())
    assert total / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_small_twins_have_the_parts_of_the_shapes(shape: str) -> None:
    large, small = (parse_shape(shape, is_small=is_small) for is_small in (False, True))
    assert (small.family, small.experts is None) == (large.family, large.experts is None)
    assert small.tie_word_embeddings == large.tie_word_embeddings
    assert sum(num_parameters(small).values()) < 500_000


@pytest.mark.parametrize("shape", ["0.6b", "8b"])
def test_the_cost_of_a_step_counts_the_bytes_of_the_parameters(shape: str) -> None:
    config = parse_shape(shape, is_small=False)
    own = num_parameters(config)
    cost = StepCostModel(config, 2 * sum(own.values()), 1)
    load = DecodeLoad(2, 10, 1, 16, 100)
    read_bytes = cost.estimate(load.sequences(0)).read_bytes - 2 * 11  # of the KV cache
    if not config.tie_word_embeddings:
        del own["model.embed_tokens.weight"]  # of which a step reads a few rows
    assert read_bytes == pytest.approx(2 * sum(own.values()), rel=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_weights_fill_all_parameters(shape: str) -> None:
    config = parse_shape(shape, is_small=True)
    decoder = random_decoder(config, 32, "cpu", seed=1)
    names = {name for name, _ in decoder.named_parameters()}
    assert names == set(num_parameters(config))
    for name, parameter in decoder.named_parameters():
        assert parameter.dtype == torch.bfloat16
        if "norm" in name:
            assert bool((parameter == 1).all())
        else:
            assert float(parameter.float().std()) == pytest.approx(0.02, rel=0.1)
    again = random_decoder(config, 32, "cpu", seed=1).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in decoder.state_dict().items())


def test_numbers_that_are_left_as_allocated_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, *args, **options: self)
    with pytest.raises(RuntimeError, match="was not filled"):
        random_decoder(parse_shape("0.6b", is_small=True), 32, "cpu", seed=1)


def test_one_model_is_kept_at_a_time() -> None:
    made: list[str] = []

    def make(name: str) -> Any:
        made.append(name)
        model = type("Model", (), {"device": "cpu"})
        return type("Loaded", (), {"name": name, "model": model})

    store = ModelStore(make)
    first: LoadedModel = store.get("8b")
    assert store.get("8b") is first
    store.get("0.6b")
    assert store.get("8b") is not first
    assert made == ["8b", "0.6b", "8b"]


def test_sequences_of_a_load_share_no_blocks() -> None:
    load = DecodeLoad(3, 30, 4, 16, 20)
    tables = [sequence.block_table for sequence in load.sequences(0)]
    blocks = [block for table in tables for block in table]
    assert [len(table) for table in tables] == [3, 3, 3]
    assert len(set(blocks)) == 9
    assert set(blocks) <= set(range(20))
    with pytest.raises(ValueError, match="3 sequences of 3 blocks, but there are 8"):
        DecodeLoad(3, 30, 4, 16, 8)


class FakeRunner:
    """Notes launches and waits. outputs: of each step, by the launched step."""

    depth = 2

    def __init__(self, token_ids: tuple[int, ...] = (7,)) -> None:
        self.calls: list[tuple[str, int]] = []
        self.steps: list[Step] = []
        self._token_ids = token_ids

    def launch(self, step: Step) -> Any:
        index = len(self.steps)
        self.steps.append(step)
        self.calls.append(("launch", index))
        return type("Handle", (), {"wait": partial(self._wait, index, step)})

    def _wait(self, index: int, step: Step) -> dict[str, SequenceOutput]:
        self.calls.append(("wait", index))
        return {s.request_id: SequenceOutput(self._token_ids) for s in step.sequences}


def test_each_step_is_launched_before_the_one_before_is_waited_for() -> None:
    runner: Any = FakeRunner()
    times = run_steps(runner, DecodeLoad(2, 30, 3, 16, 20), num_warm_ups=1)
    assert runner.calls == [
        ("launch", 0), ("launch", 1), ("wait", 0), ("launch", 2), ("wait", 1), ("wait", 2),
    ]  # fmt: skip
    assert times.is_complete
    first, *others = (step.sequences[0] for step in runner.steps)
    assert (first.start, first.token_ids) == (30, (1,))
    assert [(s.start, s.token_ids) for s in others] == [(31, PENDING_TOKEN), (32, PENDING_TOKEN)]
    assert list(first.history) == [1] * 31 + [7] * 3


def test_a_step_without_a_token_is_a_failure() -> None:
    runner: Any = FakeRunner(token_ids=())
    assert not run_steps(runner, DecodeLoad(2, 30, 3, 16, 20), num_warm_ups=1).is_complete


def test_cases_that_the_memory_does_not_hold_are_left_out() -> None:
    def names(gib: float) -> Iterator[str]:
        context = Context("cuda", 0, 0.0, {"memory_bytes": gib * 2**30})
        return (item.name for item in items(context))

    assert len([*names(139)]) == 2 * len(CASES)
    assert "8b, 128 x 4096" not in names(80)
    assert "8b, 32 x 4096" in names(80)


def test_a_case_has_its_context_on_average() -> None:
    load = Case("8b", 2, 1000).load(80, 200)
    starts = [load.sequences(index)[0].start for index in (0, 40, 79)]
    assert starts == [960, 1000, 1039]


def test_overlapping_kernels_are_busy_once() -> None:
    launches = [
        Launch("b", 40.0, 50.0), Launch("a", 0.0, 10.0), Launch("a", 5.0, 20.0), Launch("c", 6.0, 7.0),
    ]  # fmt: skip
    figures = describe_launches(launches, num_steps=2)
    assert figures["kernels_per_step"] == 2
    assert figures["kernels_s"] == pytest.approx(18e-6)
    assert figures["busy_s"] == pytest.approx(15e-6)
    assert figures["span_s"] == pytest.approx(25e-6)
    assert figures["top_kernels"][0] == {
        "name": "a",
        "seconds": pytest.approx(12.5e-6),
        "launches": 1,
    }
    assert describe_launches([], num_steps=2) == {"kernels_per_step": 0}


HEADS = Heads(2, 3, 16)


def pool_of(case: attention.Case, num_blocks: int) -> Pool:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Pool.random(num_blocks, HEADS, case.cache, Context("cpu", 0, 0.0))


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
    assert names[0] == "decode 32 x 2048"
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
    assert peak_flops({"gpu": "NVIDIA A100-SXM4-80GB", "product_flops": 1.0}) == 312e12
    assert peak_flops({"gpu": "NVIDIA H100 PCIe", "product_flops": 1.0}) == 756e12
    assert peak_flops({"gpu": "another", "product_flops": 7.0}) == 7.0


def test_a_prompt_is_computed_in_chunks() -> None:
    steps = prefill.prompt_steps(prefill.Case("8b", 40, 16), vocab_size=9, seed=3)
    sequences = [step.sequences[0] for step in steps]
    assert [(s.start, s.end, s.is_sampled) for s in sequences] == [
        (0, 16, False), (16, 32, False), (32, 40, True),
    ]  # fmt: skip
    tokens = [token for s in sequences for token in s.token_ids]
    assert tokens == list(sequences[0].history)
    assert set(tokens) == set(range(9))
    assert sorted(sequences[0].block_table) == [0, 1, 2]
    runner: Any = FakeRunner()
    assert prefill.run_prompt(runner, steps) == 3
    assert runner.calls[:3] == [("launch", 0), ("launch", 1), ("wait", 0)]


def test_only_whole_prompts_count_for_the_bar() -> None:
    names = {case.name: case.is_chunked for case in prefill.CASES}
    assert names["8b, 8192 tokens"] is False
    assert names["8b, 8192 tokens in chunks of 2048"] is True
