"""A seeded part of benchmarks/not_numbers.py, and what becomes of the blocks of such a request."""

from pathlib import Path

import not_numbers as campaign
import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import Sampled


@pytest.mark.parametrize("name", campaign.VARIANTS)
def test_a_request_without_numbers_changes_no_other_answer(name: str, tmp_path: Path) -> None:
    assert campaign.differences(campaign.VARIANTS[name], tmp_path, 60, 8, seed=0) == []


@pytest.mark.parametrize("num_host_blocks", [0, 8])
def test_nobody_finds_the_blocks_of_a_request_without_numbers(num_host_blocks: int) -> None:
    """Blocks that another request published and blocks in the host are removed as well."""
    sizes = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 40, "max_model_len": 40}
    config = SchedulerConfig(num_blocks=10, num_host_blocks=num_host_blocks, **sizes)
    scheduler = Scheduler(config)

    def answer(name: str, prompt: list[int], sampled: Sampled) -> int:
        """Run a request of one token. Returns how many of its prompt's tokens were cached."""
        sequence = Sequence(name, prompt, SamplingParams(max_tokens=1), frozenset(), 0.0)
        assert scheduler.add(sequence) is None
        while (step := scheduler.schedule(0.0)) is not None:
            scheduler.complete(step, {name: sampled}, 0.0)
        scheduler.check()
        return sequence.num_cached_tokens

    shared = list(range(16))
    assert answer("a", [*shared, 1], Sampled((5,))) == 0
    if num_host_blocks:  # evict what "a" has left on the device
        answer("large", list(range(100, 139)), Sampled((5,)))
    assert answer("b", [*shared, 2], Sampled((5,))) == 16
    assert answer("bad", [*shared, 62], Sampled(is_corrupt=True)) == 16
    assert answer("c", [*shared, 3], Sampled((5,))) == 0
    assert answer("d", [*shared, 4], Sampled((5,))) == 16
    scheduler.check()
