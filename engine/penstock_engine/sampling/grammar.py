"""Grammars as masks over the vocabulary."""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.step import ScheduledSequence

WORD_BITS = 32


def mask_by_grammar(logits: torch.Tensor, sequences: Sequence[ScheduledSequence]) -> None:
    """Takes out, in place, what the constraint of a sequence does not allow.

    logits: [rows, vocabulary]. Drafts are tried on the way and taken back; after one that the
    grammar refuses no row counts, since its own row cannot draw it.
    """
    first = 0
    for sequence in sequences:
        if sequence.constraint is not None:
            masks = _masks(sequence.constraint, sequence, logits.shape[1])
            rows = logits[first : first + len(masks)]
            rows.masked_fill_(torch.from_numpy(masks).to(logits.device), -torch.inf)
        first += sequence.num_rows


def _masks(
    constraint: Constraint, sequence: ScheduledSequence, vocab_size: int
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """True where a token may not come, for as many rows as the drafts are allowed."""
    masks = []
    num_accepted = 0
    for draft in (*sequence.drafts, None):
        bits = bytearray(-(-vocab_size // WORD_BITS) * WORD_BITS // 8)
        constraint.fill(memoryview(bits))
        allowed = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
        masks.append(allowed[:vocab_size] == 0)
        if draft is None or not constraint.accept(draft):
            break
        num_accepted += 1
    constraint.rollback(num_accepted)
    return np.stack(masks)
