"""Tests of the runner: seeds, number types, and sequences that end early."""

from pathlib import Path

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig


def generate(
    model_dir: Path, sequences: list[Sequence], *, dtype: str = "float32",
    max_num_seqs: int = 8, max_num_batched_tokens: int = 32,
) -> dict[str, list[int]]:  # fmt: skip
    limits = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
    sizes = {"num_blocks": 64, "block_size": 8, "max_model_len": 256, **limits}
    config = RunnerConfig(model_dir=model_dir, device="cpu", dtype=dtype, **sizes)
    runner = Runner.load(config)
    scheduler = Scheduler(SchedulerConfig(**sizes))
    outputs: dict[str, list[int]] = {}
    for sequence in sequences:
        assert scheduler.add(sequence) is None
        outputs[sequence.request_id] = []
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[event.request_id] += event.token_ids
    return outputs


def random_sequence(name: str, length: int, **sampling: object) -> Sequence:
    params = SamplingParams(max_tokens=20, ignore_eos=True, **sampling)  # type: ignore[arg-type]
    return Sequence(name, [7] * length, params, frozenset({63}), 0.0)


def test_a_seed_repeats_itself_in_any_company(qwen3_dir: Path) -> None:
    """Alone or crowded, in one chunk or several."""
    alone = generate(qwen3_dir, [random_sequence("a", 9, seed=5)])
    company = [random_sequence(f"{i}", 5 * i, temperature=0.7, seed=i) for i in range(1, 7)]
    crowded = generate(
        qwen3_dir, [*company, random_sequence("a", 9, seed=5)], max_num_batched_tokens=13
    )
    assert crowded["a"] == alone["a"]
    assert generate(qwen3_dir, [random_sequence("a", 9, seed=6)]) != alone


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_number_type_computes(qwen3_dir: Path, dtype: str) -> None:
    """Prompts longer than a chunk and single tokens, packed together."""
    sequences = [
        random_sequence(f"{length}", length, temperature=0.0) for length in (1, 2, 40, 100)
    ]
    outputs = generate(qwen3_dir, sequences, dtype=dtype)
    assert {len(tokens) for tokens in outputs.values()} == {20}
    assert all(0 <= token < 64 for tokens in outputs.values() for token in tokens)


def test_an_early_end_is_not_drawn(qwen3_dir: Path) -> None:
    """min_tokens holds although the model would like to end at once."""
    every_token = frozenset(range(1, 64))
    sampling = SamplingParams(
        max_tokens=9, min_tokens=3, temperature=0.0, stop_token_ids=every_token
    )
    [tokens] = generate(qwen3_dir, [Sequence("a", [1, 2], sampling, frozenset({63}), 0.0)]).values()
    assert tokens[:3] == [0, 0, 0]
