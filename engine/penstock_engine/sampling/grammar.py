"""Masks of the tokens that grammars allow."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.step import ScheduledSequence

WORD_BITS = 32

Words = np.ndarray[tuple[int, int], np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class GrammarMasks:
    """Bit masks of the tokens that grammars allow.

    rows: indices of the rows of logits that have a grammar, ascending. words: int32 [len(rows),
    words]; bit i of word w is set if token 32 w + i is allowed.
    """

    rows: list[int]
    words: Words

    def select(self, part: slice) -> "GrammarMasks | None":
        """The masks for some rows of logits; None if none of these has a grammar."""
        first, end = bisect_left(self.rows, part.start), bisect_left(self.rows, part.stop)
        if first == end:
            return None
        return GrammarMasks(
            [row - part.start for row in self.rows[first:end]], self.words[first:end]
        )

    def apply(self, logits: torch.Tensor) -> None:
        """Set the logits of tokens that are not allowed to -inf, in place. logits: [all rows,
        vocabulary]."""
        bits = np.unpackbits(self.words.view(np.uint8), axis=1, bitorder="little")
        is_out = torch.from_numpy(bits[:, : logits.shape[1]] == 0).to(logits.device)
        logits[self.rows] = logits[self.rows].masked_fill_(is_out, -torch.inf)

    def dense(self, num_rows: int) -> Words:
        """Masks for all rows, int32 [num_rows, words]; rows without a grammar allow every token."""
        words = np.full((num_rows, self.words.shape[1]), -1, dtype=np.int32)
        words[self.rows] = self.words
        return words


def grammar_masks(sequences: Sequence[ScheduledSequence], vocab_size: int) -> GrammarMasks | None:
    """Compute the masks for all rows of a batch; None if no sequence has a grammar.

    The grammars advance through drafts and are rolled back. Rows after the first draft that a grammar
    rejects need no mask, because that draft cannot be sampled and they are discarded.
    """
    rows: list[int] = []
    words: list[Words] = []
    first = 0
    for sequence in sequences:
        if sequence.constraint is not None:
            own = _words(sequence.constraint, sequence, vocab_size)
            rows += range(first, first + len(own))
            words.append(own)
        first += sequence.num_rows
    return GrammarMasks(rows, np.concatenate(words)) if words else None


def _words(constraint: Constraint, sequence: ScheduledSequence, vocab_size: int) -> Words:
    """Masks for the rows of a sequence, up to the first draft that the grammar rejects.

    No token is allowed if the text is complete: the sequence ended with the previous step, which was
    not known when this step was launched.
    """
    rows = []
    num_accepted = 0
    try:
        for draft in (*sequence.drafts, None):
            bits = bytearray(-(-vocab_size // WORD_BITS) * WORD_BITS // 8)
            if not constraint.is_finished:
                constraint.fill(memoryview(bits))
            rows.append(np.frombuffer(bits, np.int32))
            if draft is None or not constraint.accept(draft):
                break
            num_accepted += 1
    finally:  # the grammar only advances with accepted tokens; a failed step is run again
        constraint.rollback(num_accepted)
    return np.stack(rows)
