"""Blocks that are saved, brought back and forked hold what they held."""

from pathlib import Path

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig

SIZES = {"block_size": 4, "max_model_len": 96, "max_num_seqs": 3, "max_num_batched_tokens": 32}


def prompt(number: int) -> list[int]:
    return [(number * 11 + i * i) % 63 for i in range(37)]


def sequence(name: str, number: int, seed: int = 0, fork_of: str = "") -> Sequence:
    params = SamplingParams(max_tokens=9, seed=seed, ignore_eos=True, temperature=0.8)
    return Sequence(name, prompt(number), params, frozenset(), 0.0, fork_of=fork_of)


def run(
    model_dir: Path, sequences: list[list[Sequence]], *, num_blocks: int, num_host_blocks: int = 0,
    prefix_caching: bool = True, speculation: SpeculationConfig | None = None,
) -> tuple[dict[str, list[int]], SchedulerStats]:  # fmt: skip
    """Run one list of prompts after another, each to its end."""
    draft = None if speculation is None else Path(speculation.model or "")
    runner_config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", num_blocks=num_blocks,
        num_host_blocks=num_host_blocks, draft_model_dir=draft, **SIZES,
    )  # fmt: skip
    runner = Runner.load(runner_config)
    config = SchedulerConfig(
        num_blocks=num_blocks, num_host_blocks=num_host_blocks, prefix_caching=prefix_caching,
        speculation=speculation, **SIZES,
    )  # fmt: skip
    scheduler = Scheduler(config)
    outputs: dict[str, list[int]] = {}
    for batch in sequences:
        for one in batch:
            assert scheduler.add(one) is None
        while (step := scheduler.schedule(0.0)) is not None:
            scheduler.check()
            for event in scheduler.complete(step, runner.run(step), 0.0):
                outputs.setdefault(event.request_id, []).extend(event.token_ids)
    return outputs, scheduler.stats()


@pytest.mark.parametrize("with_draft_model", [False, True])
def test_what_was_evicted_comes_back_from_the_host(qwen3_dir: Path, with_draft_model: bool) -> None:
    """Three prompts fill the device in turn; the second round finds all but the last in the host."""
    speculation = None
    if with_draft_model:
        speculation = SpeculationConfig(
            method="draft_model", num_speculative_tokens=3, model=str(qwen3_dir)
        )

    def rounds() -> list[list[Sequence]]:
        return [[sequence(f"{turn}{n}", n, seed=n)] for turn in "ab" for n in range(3)]

    plain, _ = run(qwen3_dir, rounds(), num_blocks=100, prefix_caching=False)
    kept, stats = run(
        qwen3_dir, rounds(), num_blocks=14, num_host_blocks=40, speculation=speculation
    )
    assert kept == plain
    assert stats.saved_blocks > 20
    assert stats.prompt_tokens_from_host >= 2 * 32
    lost, without = run(qwen3_dir, rounds(), num_blocks=14, speculation=speculation)
    assert lost == plain
    assert without.prompt_tokens_from_host == without.saved_blocks == 0


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("num_blocks", [100, 24])
def test_forks_compute_their_prompt_once(
    qwen3_dir: Path, num_blocks: int, prefix_caching: bool
) -> None:
    """Four choices of one prompt: the same tokens as alone, for the price of one prompt."""
    alone, _ = run(
        qwen3_dir, [[sequence(str(n), 1, seed=n)] for n in range(4)], num_blocks=100,
        prefix_caching=False,
    )  # fmt: skip
    forks = [sequence(str(n), 1, seed=n, fork_of="0" if n else "") for n in range(4)]
    together, stats = run(qwen3_dir, [forks], num_blocks=num_blocks, prefix_caching=prefix_caching)
    assert together == alone
    if num_blocks == 100:
        assert stats.prompt_tokens_computed < 37 + 2 * 4 + 37  # the fourth finds nobody to fork
