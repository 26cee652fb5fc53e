"""Parts of the measurements of benchmarks/device.py that need no GPU."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.gpu import prefill, start
from benchmarks.gpu.context import Context
from benchmarks.gpu.decode import CASES, Case, items
from benchmarks.gpu.meters.kernel_profile import Launch, describe_launches, profile_steps
from benchmarks.gpu.shapes import SHAPES
from benchmarks.gpu.startup.plan import counted_bytes, write_empty_checkpoint
from benchmarks.gpu.workloads.decode_load import DecodeLoad, run_steps
from benchmarks.gpu.workloads.largest_steps import largest_steps
from benchmarks.gpu.workloads.models import LoadedModel, ModelStore, parse_shape, random_decoder

from penstock_engine.core.step import PENDING_TOKEN, SequenceOutput, Step
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import model_parameters
from penstock_engine.models.step_cost import StepCostModel
from penstock_engine.options.config import EngineConfig


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
    assert runner.steps[0].sequences[1].token_ids == (2,)
    assert [(s.start, s.token_ids) for s in others] == [(31, PENDING_TOKEN), (32, PENDING_TOKEN)]
    assert list(first.history) == [1] * 31 + [7] * 3


def test_a_step_without_a_token_is_a_failure() -> None:
    runner: Any = FakeRunner(token_ids=())
    assert not run_steps(runner, DecodeLoad(2, 30, 3, 16, 20), num_warm_ups=1).is_complete


def test_cases_that_the_memory_does_not_hold_are_left_out() -> None:
    def names(gib: float) -> Iterator[str]:
        context = Context("cuda", 0, 0.0, {"memory_bytes": gib * 2**30})
        return (item.name for item in items(context))

    assert len([*names(139)]) == 1 + 2 * len(CASES) - 3  # kernels of three cases
    assert "8b, 128 x 4096" not in names(80)
    assert "8b, 32 x 4096" in names(80)


def test_the_driver_knows_the_memory_if_the_machine_was_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    properties = type("Properties", (), {"total_memory": 139 * 2**30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    names = [item.name for item in items(Context("cuda", 0, 0.0))]
    assert len(names) == 1 + 2 * len(CASES) - 3


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


def test_an_engine_is_planned_from_headers_alone(tmp_path: Path) -> None:
    write_empty_checkpoint(tmp_path, SHAPES["8b"])
    file = tmp_path / "model.safetensors"
    assert file.stat().st_size > 16e9
    assert file.stat().st_blocks * 512 < 1e6
    config = EngineConfig(model_dir=tmp_path, dtype="bfloat16")
    memory = DeviceMemory(139 * 2**30, 2**30)
    plan = plan_memory(config, device_name="cuda", memory=memory)
    assert (plan.max_num_seqs, plan.max_num_batched_tokens) == (1024, 8192)
    assert plan.weights_bytes == 2 * sum(num_parameters(plan.model).values())
    counted = counted_bytes(config, plan, memory)
    total_bytes = counted.pop("counted_total_bytes")
    assert total_bytes == int(0.9 * 139 * 2**30)
    unused = total_bytes - 2**30 - sum(counted.values())
    assert 0 <= unused < plan.block_size * plan.kv_bytes_per_token
    assert counted["counted_graph_bytes"] > 0


@pytest.mark.parametrize(("max_num_seqs", "num_steps"), [(16, 3), (1, 3)])
def test_the_largest_steps_are_within_the_limits(max_num_seqs: int, num_steps: int) -> None:
    limits = RunnerConfig(
        model_dir=Path(), device="cpu", dtype="bfloat16", num_blocks=9, block_size=16,
        max_num_seqs=max_num_seqs, max_num_batched_tokens=64, max_model_len=50,
    )  # fmt: skip
    steps = largest_steps(limits)
    assert len(steps) == num_steps
    assert [len(step.sequences) for step in steps[:2]] == [1, max_num_seqs]
    assert steps[2].num_tokens == (64 if max_num_seqs == 16 else 50)
    for sequence in (sequence for step in steps for sequence in step.sequences):
        assert sequence.end <= 50
        assert len(sequence.block_table) == -(-sequence.end // 16)
        assert len(sequence.history) == sequence.end
    assert max(s.end for s in steps[1].sequences) == 50


def test_a_start_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "PROGRAM", "import sys; sys.exit('no memory')")
    figures = start.measure("8b", Context("cpu", 0, 0.0))
    assert figures == {"error": "exit status 1: no memory\n"}
    monkeypatch.setattr(start, "PROGRAM", "import sys; print('log'); print('{\"a\": 1}')")
    assert start.measure("8b", Context("cpu", 0, 0.0)) == {"a": 1}


def test_a_fault_of_the_profiler_is_told_and_no_failure() -> None:
    def fail() -> None:
        raise RuntimeError("no profiler")

    assert profile_steps(fail, "cpu", 1) == {"not_profiled": "RuntimeError: no profiler"}
    figures = profile_steps(partial(torch.zeros(3).add_, 1), "cpu", 1)
    assert "aten::add_" in {each["name"] for each in figures["top_kernels"]}
