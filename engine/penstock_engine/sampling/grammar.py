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
    """rows: of logits, rising, that a grammar has a say in. words: [rows, words], of each row bit i of word
    w for token 32 w + i: set where it may come."""

    rows: list[int]
    words: Words

    def of(self, part: slice) -> "Allowed | None":
        """Of some rows of logits; None where no grammar has a say."""
        first, end = bisect_left(self.rows, part.start), bisect_left(self.rows, part.stop)
        if first == end:
            return None
        return Allowed([row - part.start for row in self.rows[first:end]], self.words[first:end])

    def mask(self, logits: torch.Tensor) -> None:
        """Takes out, in place, what may not come. logits: [all rows, vocabulary]."""
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
    """For as many rows as the drafts are allowed. Behind a complete text nothing can be drawn: it
    is over with the step before this one, which nobody knew when this one was launched."""
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
    finally:  # a step that fails is run again, from the same place in the grammar
        constraint.rollback(num_accepted)
    return np.stack(rows)
