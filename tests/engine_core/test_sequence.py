"""Tests of derived properties of a sequence."""

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.step import TokenLogprobs


def sequence(num_prompt_tokens: int = 4, **sampling: object) -> Sequence:
    params = SamplingParams(max_tokens=9, **sampling)  # type: ignore[arg-type]
    return Sequence("a", [7] * num_prompt_tokens, params, frozenset({5}), 3.0)


def test_a_new_sequence_waits_without_blocks() -> None:
    one = sequence()
    assert one.status is Status.WAITING
    assert (one.num_tokens, one.num_prompt_tokens, one.num_output_tokens) == (4, 4, 0)
    assert (one.num_computed_tokens, one.num_cached_tokens, one.num_host_tokens) == (0, 0, 0)
    assert (one.num_preemptions, one.num_waits, one.num_skipped_blocks) == (0, 0, 0)
    assert (one.block_table, one.block_hashes, one.prompt_logprobs) == ([], [], [])
    assert one.first_scheduled_s is None
    assert one.first_token_s is None
    assert one.drafter is None
    assert (one.arrival_s, one.order) == (3.0, (0, 0))
    assert repr(one) == "Sequence('a', waiting, prompt=4, computed=0/4)"


@pytest.mark.parametrize(
    ("num_computed", "num_behind", "num_pending", "has_computed_prompt"),
    [(0, 6, 4, False), (3, 3, 1, False), (4, 2, 0, True), (5, 1, 0, True)],
)
def test_progress_of_a_sequence(
    num_computed: int, num_behind: int, num_pending: int, has_computed_prompt: bool
) -> None:
    """The sequence has four prompt tokens and two output tokens."""
    one = sequence()
    one.tokens += [1, 2]
    one.num_computed_tokens = num_computed
    assert (one.num_tokens, one.num_output_tokens) == (6, 2)
    assert one.num_tokens_behind == num_behind
    assert one.num_prompt_tokens_pending == num_pending
    assert one.has_computed_prompt is has_computed_prompt


def test_skipped_blocks_are_not_held() -> None:
    one = sequence()
    one.block_table, one.num_skipped_blocks = [0, 0, 8, 9], 2
    assert one.held_blocks == [8, 9]


@pytest.mark.parametrize(
    ("sampling", "num_existing", "wants"),
    [
        ({}, 0, False),
        ({"prompt_logprobs": 0}, 0, True),
        ({"prompt_logprobs": 2}, 2, True),
        ({"prompt_logprobs": 2}, 3, False),
    ],
)
def test_prompt_logprobs_are_wanted_until_they_are_complete(
    sampling: dict[str, object], num_existing: int, wants: bool
) -> None:
    one = sequence(4, **sampling)
    one.prompt_logprobs += [TokenLogprobs(7, -1.0, 1, ())] * num_existing
    assert one.wants_prompt_logprobs is wants


@pytest.mark.parametrize("ignores", [False, True])
def test_ending_tokens_include_eos_unless_ignored(ignores: bool) -> None:
    one = sequence(stop_token_ids=frozenset({6}), ignore_eos=ignores)
    assert one.ending_token_ids == ({6} if ignores else {5, 6})
