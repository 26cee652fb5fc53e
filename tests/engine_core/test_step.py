"""Tests of derived properties of steps and scheduled sequences."""

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import (
    NO_BLOCK_COPIES,
    PENDING_TOKEN,
    BlockCopies,
    ScheduledSequence,
    Step,
)

HISTORY = [10, 11, 12, 13, 14, 15]


def part(
    start: int, token_ids: tuple[int, ...], *, num_drafts: int = 0, num_runner_drafts: int = 0,
    is_sampled: bool = True,
) -> ScheduledSequence:  # fmt: skip
    """Returns a chunk of a sequence with four prompt tokens."""
    return ScheduledSequence(
        "a", start, token_ids, (0, 1), is_sampled, SamplingParams(max_tokens=9), HISTORY, 4,
        num_drafts=num_drafts, num_runner_drafts=num_runner_drafts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scheduled", "num_tokens", "end", "num_rows", "max_num_drafts", "drafts"),
    [
        (part(0, (10, 11, 12)), 3, 3, 1, 0, ()),
        (part(0, (10, 11, 12), is_sampled=False), 3, 3, 0, 0, ()),
        (part(5, (15, 7, 8), num_drafts=2), 3, 8, 3, 2, (7, 8)),
        (part(5, (15,), num_runner_drafts=3), 1, 6, 1, 3, ()),
        (part(5, (15, 7), num_drafts=1, num_runner_drafts=3), 2, 7, 2, 4, (7,)),
    ],
)
def test_tokens_rows_and_drafts_of_a_scheduled_sequence(
    scheduled: ScheduledSequence, num_tokens: int, end: int, num_rows: int, max_num_drafts: int,
    drafts: tuple[int, ...],
) -> None:  # fmt: skip
    assert (scheduled.num_tokens, scheduled.end) == (num_tokens, end)
    assert (scheduled.num_rows, scheduled.max_num_drafts) == (num_rows, max_num_drafts)
    assert scheduled.drafts == drafts


def test_with_sampled_token_replaces_a_pending_token_only() -> None:
    assert part(5, PENDING_TOKEN).with_sampled_token() == part(5, (15,))
    assert part(5, (15,)).with_sampled_token() == part(5, (15,))


def test_with_drafts_sets_the_drafts_of_the_runner() -> None:
    expected = part(5, (15, 7, 8), num_drafts=2)
    assert part(5, (15,), num_runner_drafts=3).with_drafts((7, 8)) == expected
    assert part(5, (15,), num_runner_drafts=3).with_drafts(()) == part(5, (15,))


def test_a_step_counts_all_tokens_and_prompt_tokens() -> None:
    """A chunk that starts inside the prompt counts with all its tokens, a later one not at all."""
    step = Step((part(0, (10, 11)), part(3, (13,)), part(4, (14, 7), num_drafts=1)))
    assert (step.num_tokens, step.num_prompt_tokens) == (5, 3)
    assert step.block_copies is NO_BLOCK_COPIES
    assert BlockCopies() == NO_BLOCK_COPIES
    assert (NO_BLOCK_COPIES.saves, NO_BLOCK_COPIES.restores, NO_BLOCK_COPIES.forks) == ((), (), ())
