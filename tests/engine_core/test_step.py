"""Derived properties of steps and scheduled sequences."""

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
    """A chunk of a sequence with four prompt tokens."""
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
def test_rows_and_drafts_of_a_part(
    scheduled: ScheduledSequence, num_tokens: int, end: int, num_rows: int, max_num_drafts: int,
    drafts: tuple[int, ...],
) -> None:  # fmt: skip
    assert (scheduled.num_tokens, scheduled.end) == (num_tokens, end)
    assert (scheduled.num_rows, scheduled.max_num_drafts) == (num_rows, max_num_drafts)
    assert scheduled.drafts == drafts


def test_a_drawn_token_is_known_and_others_were() -> None:
    assert part(5, PENDING_TOKEN).with_sampled_token() == part(5, (15,))
    assert part(5, (15,)).with_sampled_token() == part(5, (15,))


def test_drafts_of_the_runner_take_the_place_of_those_left_open() -> None:
    expected = part(5, (15, 7, 8), num_drafts=2)
    assert part(5, (15,), num_runner_drafts=3).with_drafts((7, 8)) == expected
    assert part(5, (15,), num_runner_drafts=3).with_drafts(()) == part(5, (15,))


def test_a_step_counts_its_tokens_and_those_of_prompts() -> None:
    """A part that begins within the prompt counts as a whole, the one that begins behind it not."""
    step = Step((part(0, (10, 11)), part(3, (13,)), part(4, (14, 7), num_drafts=1)))
    assert (step.num_tokens, step.num_prompt_tokens) == (5, 3)
    assert step.block_copies is NO_BLOCK_COPIES
    assert BlockCopies() == NO_BLOCK_COPIES
    assert (NO_BLOCK_COPIES.saves, NO_BLOCK_COPIES.restores, NO_BLOCK_COPIES.forks) == ((), (), ())
