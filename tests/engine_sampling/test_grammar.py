"""Bit masks of the tokens that grammars allow in each row of a step."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.grammar import GrammarMasks, grammar_masks

MakeScheduled = Callable[..., ScheduledSequence]


class CountingConstraint:
    """A constraint that allows the tokens 33, 34, 35, … in this order, up to `last`."""

    has_failed = False

    def __init__(self, last: int = 99) -> None:
        self.next = 33
        self.last = last
        self.sizes: list[int] = []

    @property
    def is_finished(self) -> bool:
        return self.next > self.last

    def fill(self, bits: memoryview) -> None:
        self.sizes.append(len(bits))
        assert not any(bits)
        bits[self.next // 8] |= 1 << self.next % 8

    def accept(self, token_id: int) -> bool:
        if token_id < 0:
            raise RuntimeError("broken")
        is_next = token_id == self.next
        self.next += is_next
        return is_next

    def rollback(self, num_tokens: int) -> None:
        self.next -= num_tokens


def possible(allowed: GrammarMasks, num_rows: int, vocab_size: int) -> list[list[int]]:
    """Returns the tokens that the mask allows in each row."""
    logits = torch.zeros(num_rows, vocab_size)
    allowed.apply(logits)
    return [row.isfinite().nonzero()[:, 0].tolist() for row in logits]


@pytest.mark.parametrize(("vocab_size", "num_bytes"), [(36, 8), (63, 8), (64, 8), (65, 12)])
def test_a_grammar_masks_only_rows_of_its_sequence(
    scheduled: MakeScheduled, vocab_size: int, num_bytes: int
) -> None:
    """The second of three sequences has two drafts. The grammar rejects the second draft."""
    grammar, other = CountingConstraint(), CountingConstraint()
    sequences = [
        scheduled(drafts=[1]),
        scheduled(drafts=[33, 40], constraint=grammar),
        scheduled(constraint=other),
    ]
    allowed = grammar_masks(sequences, vocab_size)
    assert allowed is not None
    assert allowed.rows == [2, 3, 5]
    assert (grammar.next, grammar.sizes, other.sizes) == (33, [num_bytes] * 2, [num_bytes])
    full = list(range(vocab_size))
    assert possible(allowed, 6, vocab_size) == [full, full, [33], [34], full, [33]]
    words = allowed.dense(6)
    assert words.dtype == np.int32
    assert words.tolist() == [
        [-1] * (num_bytes // 4)
        if row in (0, 1, 4)
        else [0, 2 if row != 3 else 4, 0][: num_bytes // 4]
        for row in range(6)
    ]


def test_each_allowed_draft_and_the_token_after_them_have_a_mask(scheduled: MakeScheduled) -> None:
    grammar = CountingConstraint()
    allowed = grammar_masks([scheduled(drafts=[33, 34], constraint=grammar)], 64)
    assert allowed is not None
    assert possible(allowed, 3, 64) == [[33], [34], [35]]
    assert grammar.next == 33


def test_a_complete_text_allows_no_token(scheduled: MakeScheduled) -> None:
    grammar = CountingConstraint(last=33)
    allowed = grammar_masks([scheduled(drafts=[33], constraint=grammar)], 64)
    assert allowed is not None
    assert possible(allowed, 2, 64) == [[33], []]


def test_without_a_grammar_there_is_no_mask(scheduled: MakeScheduled) -> None:
    assert grammar_masks([scheduled(), scheduled(drafts=[1])], 64) is None


def test_an_exception_of_a_grammar_leaves_its_state_unchanged(scheduled: MakeScheduled) -> None:
    grammar = CountingConstraint()
    with pytest.raises(RuntimeError, match="broken"):
        grammar_masks([scheduled(drafts=[33, 34, -1], constraint=grammar)], 64)
    assert grammar.next == 33


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        (slice(0, 9), [1, 2, 5]), (slice(0, 1), None), (slice(1, 2), [0]), (slice(1, 3), [0, 1]),
        (slice(2, 5), [0]), (slice(2, 6), [0, 3]), (slice(3, 5), None), (slice(6, 9), None),
    ],
    ids=str,
)  # fmt: skip
def test_a_slice_of_the_rows_has_their_masks(part: slice, rows: list[int] | None) -> None:
    words = np.array([[1], [2], [5]], dtype=np.int32)
    allowed = GrammarMasks([1, 2, 5], words).select(part)
    if rows is None:
        assert allowed is None
    else:
        assert allowed is not None
        assert allowed.rows == rows
        assert allowed.words[:, 0].tolist() == [part.start + row for row in rows]
