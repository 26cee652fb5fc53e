"""Grammars as masks over the vocabulary."""

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
class Allowed:
    """Tokens that grammars allow. rows: rows of logits with a grammar, rising. words: [rows, words];
    bit i of word w is set if token 32 w + i is allowed."""

    rows: list[int]
    words: Words

    def of(self, part: slice) -> "Allowed | None":
        """The masks for some rows of logits; None if none of these has a grammar."""
        first, end = bisect_left(self.rows, part.start), bisect_left(self.rows, part.stop)
        if first == end:
            return None
        return Allowed([row - part.start for row in self.rows[first:end]], self.words[first:end])

    def mask(self, logits: torch.Tensor) -> None:
        """Set the logits of other tokens to -inf, in place. logits: [all rows, vocabulary]."""
        bits = np.unpackbits(self.words.view(np.uint8), axis=1, bitorder="little")
        is_out = torch.from_numpy(bits[:, : logits.shape[1]] == 0).to(logits.device)
        logits[self.rows] = logits[self.rows].masked_fill_(is_out, -torch.inf)

    def for_all(self, num_rows: int) -> Words:
        """[num_rows, words]: in the other rows, every token may come."""
        words = np.full((num_rows, self.words.shape[1]), -1, dtype=np.int32)
        words[self.rows] = self.words
        return words


def allowed_by_grammar(sequences: Sequence[ScheduledSequence], vocab_size: int) -> Allowed | None:
    """None where no sequence has a constraint.

    Drafts are tried on the way and taken back; after one that the grammar refuses no row counts,
    since its own row cannot draw it.
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
    return Allowed(rows, np.concatenate(words)) if words else None


def _words(constraint: Constraint, sequence: ScheduledSequence, vocab_size: int) -> Words:
    """Masks for the rows of a sequence, up to the first draft that the grammar rejects.

    Behind a complete text no token is allowed: the sequence ended with the step before, which was not
    known when this step was launched.
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
