"""The steps of the warm-up: within the limits, and for each block size of a product."""

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.execution.warm_up import ADAPTER, kernel_steps, token_counts, weight_steps
from penstock_engine.kernels.attention_tile import TILE_TOKENS
from penstock_engine.kernels.grouped_linear import choose_block_rows


def configuration(
    *, max_num_seqs: int = 8, max_num_batched_tokens: int = 300, max_model_len: int = 100,
    block_size: int = 16, max_adapters: int = 0,
) -> RunnerConfig:  # fmt: skip
    return RunnerConfig(
        model_dir=Path(), device="cuda", dtype="bfloat16", num_blocks=9, block_size=block_size,
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len, max_adapters=max_adapters,
    )  # fmt: skip


@given(
    st.builds(
        configuration,
        max_num_seqs=st.integers(1, 20),
        max_num_batched_tokens=st.integers(1, 600),
        max_model_len=st.integers(1, 200),
        block_size=st.integers(1, 40),
        max_adapters=st.integers(0, 2),
    )
)
def test_steps_stay_within_the_limits(config: RunnerConfig) -> None:
    for step in (*weight_steps(config), *kernel_steps(config, [(8, 2)])):
        ids = {sequence.request_id for sequence in step.sequences}
        assert 1 <= len(ids) == len(step.sequences) <= config.max_num_seqs
        assert step.num_tokens <= config.max_num_batched_tokens
        for sequence in step.sequences:
            last = sequence.end + sequence.num_runner_drafts
            assert last <= config.max_model_len
            assert set(sequence.block_table) == {0}
            assert len(sequence.block_table) * config.block_size >= last
            assert bool(sequence.adapter) <= bool(config.max_adapters)


def test_the_largest_step_is_the_first() -> None:
    first, *others = kernel_steps(configuration(), [])
    assert first.num_tokens == 300
    assert max(step.num_tokens for step in others) < 300


def test_each_size_is_run_with_and_without_an_adapter() -> None:
    steps = kernel_steps(configuration(max_adapters=1), [(1, 1)])
    run = {(step.sequences[0].adapter, step.num_tokens) for step in steps}
    for num_tokens in token_counts(300, [(1, 1)]):
        assert {("", num_tokens), (ADAPTER, num_tokens)} <= run


def test_each_block_size_of_sampled_rows_is_run() -> None:
    """A quantized head has a row for each sampled token, however many tokens the step has."""
    steps = kernel_steps(configuration(max_num_seqs=64), [])
    rows = {sum(sequence.num_rows for sequence in step.sequences) for step in steps}
    assert {1, 16, 17, 32, 33, 64} <= rows


def test_each_tile_of_attention_is_run_with_a_full_context() -> None:
    ends = [
        (sequence.start, sequence.end)
        for step in kernel_steps(configuration(), [])
        for sequence in step.sequences
        if sequence.start and sequence.end == 100
    ]
    assert ends == [(100 - num_tokens, 100) for num_tokens in TILE_TOKENS]


@given(st.integers(1, 3000), st.integers(1, 64), st.integers(1, 8))
def test_the_ends_of_each_block_size_are_run(
    most_tokens: int, num_groups: int, rows_of_token: int
) -> None:
    counts = token_counts(most_tokens, [(num_groups, rows_of_token)])
    by_size: dict[int, list[int]] = {}
    for n in range(1, most_tokens + 1):
        by_size.setdefault(choose_block_rows(n * rows_of_token, num_groups), []).append(n)
    assert {1, most_tokens} <= counts <= set(range(1, most_tokens + 1))
    for numbers in by_size.values():
        assert {numbers[0], numbers[-1]} <= counts


def test_nothing_of_the_steps_stays(qwen3_dir: Path) -> None:
    """The runner drafts in them, and uses an adapter, which is gone afterwards."""
    config = replace(
        configuration(max_adapters=1), model_dir=qwen3_dir, device="cpu", dtype="float32",
        draft_model_dir=qwen3_dir,
    )  # fmt: skip
    runners = [Runner.load(config) for _ in range(2)]
    runners[0].warm_up(kernel_steps(config, [(1, 1)]))
    assert runners[0].adapters.active == []
    sampling = SamplingParams(max_tokens=9, temperature=0.0)
    prompt = ScheduledSequence("a", 0, (5, 6, 7), (3,), True, sampling, [5, 6, 7], 3)
    first, second = (runner.run(Step((prompt,))) for runner in runners)
    assert first == second
    with pytest.raises(KeyError):
        runners[0].run(Step((prompt._replace(adapter=ADAPTER),)))
