"""A seeded part of benchmarks/engine/nan_isolation.py, and the blocks of such a request afterwards."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from benchmarks.engine import nan_isolation as campaign
from safetensors.torch import load_file, save_file

from penstock_engine.checkpoints.weights import SINGLE_NAME
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput


@pytest.mark.parametrize("name", campaign.VARIANTS)
def test_a_request_without_numbers_changes_no_other_answer(name: str, tmp_path: Path) -> None:
    assert campaign.differences(campaign.VARIANTS[name], tmp_path, 60, 8, seed=0) == []


@pytest.mark.parametrize("num_host_blocks", [0, 8])
def test_nobody_finds_the_blocks_of_a_request_without_numbers(num_host_blocks: int) -> None:
    """Blocks that another request published and blocks in the host are removed as well."""
    sizes = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 40, "max_model_len": 40}
    config = SchedulerConfig(num_blocks=10, num_host_blocks=num_host_blocks, **sizes)
    scheduler = Scheduler(config)

    def answer(name: str, prompt: list[int], sampled: SequenceOutput) -> int:
        """Run a request of one token. Returns how many of its prompt's tokens were cached."""
        sequence = Sequence(name, prompt, SamplingParams(max_tokens=1), frozenset(), 0.0)
        assert scheduler.add(sequence) is None
        while (step := scheduler.schedule(0.0)) is not None:
            scheduler.complete(step, {name: sampled}, 0.0)
        scheduler.check()
        return sequence.num_cached_tokens

    shared = list(range(16))
    assert answer("a", [*shared, 1], SequenceOutput((5,))) == 0
    if num_host_blocks:  # evict what "a" has left on the device
        answer("large", list(range(100, 139)), SequenceOutput((5,)))
    assert answer("b", [*shared, 2], SequenceOutput((5,))) == 16
    assert answer("bad", [*shared, 62], SequenceOutput(is_corrupt=True)) == 16
    assert answer("c", [*shared, 3], SequenceOutput((5,))) == 0
    assert answer("d", [*shared, 4], SequenceOutput((5,))) == 16
    scheduler.check()


def test_log_probabilities_of_a_prompt_that_are_not_numbers_are_not_told(tmp_path: Path) -> None:
    """A row of lm_head that overflows float16 at every other position, by the sign of the product."""
    variant = campaign.Variant(runner={"dtype": "float16"})
    campaign.make_model(tmp_path, variant)
    weights = load_file(tmp_path / SINGLE_NAME)
    weights["lm_head.weight"][7] = 60_000 * torch.randn(32, generator=torch.Generator()).sign()
    save_file(weights, tmp_path / SINGLE_NAME, {"format": "pt"})
    draw = Random(0)
    plain = SamplingParams(max_tokens=1, temperature=0.0)
    silent = [
        campaign.Request(str(i), [draw.randrange(60) for _ in range(40)], plain, "")
        for i in range(12)
    ]
    told = [
        replace(request, name=f"told {request.name}", sampling=replace(plain, prompt_logprobs=1))
        for request in silent
    ]
    answers = campaign.answers(variant, tmp_path, tmp_path, [*silent, *told])
    failures = {answers[request.name].failure for request in silent}
    assert failures == {None, "nan_output"}, "half of the last positions have numbers"
    assert {answers[request.name].failure for request in told} == {"nan_output"}
