"""From logits to tokens: one draw for each row, and what the drafts among them were worth.

A row is one position of one sequence. A sequence with d drafts has d + 1 rows; its draft i is
right when row i draws it, so drafts change neither the distribution nor, for a given seed, the
tokens: a draft only saves the step that would have drawn it. (Speculative sampling of Leviathan
et al., 2023, with drafts that are certain of themselves.)
"""

from collections.abc import Sequence

import torch

from penstock_engine.core.step import Sampled, ScheduledSequence
from penstock_engine.kernels.operations import operations
from penstock_engine.sampling.bias import forbid_and_favour
from penstock_engine.sampling.draw import IMPOSSIBLE, draw
from penstock_engine.sampling.grammar import allowed_by_grammar
from penstock_engine.sampling.logprobs import token_logprobs
from penstock_engine.sampling.race import race
from penstock_engine.sampling.row import rows_of


def sample(logits: torch.Tensor, sequences: Sequence[ScheduledSequence]) -> list[Sampled]:
    """logits: [rows, vocabulary], the rows of all `sequences` in order; is overwritten.

    One result for each sequence; without tokens where its request leaves nothing to draw.
    """
    rows = [row for sequence in sequences for row in rows_of(sequence)]
    logits = logits.float()
    is_told = any(row.sampling.logprobs is not None for row in rows)
    raw = logits.clone() if is_told else logits
    allowed = allowed_by_grammar(sequences, logits.shape[1])
    forbid_and_favour(logits, rows)
    choose = race if operations(logits.device).has_kernels else draw
    tokens = choose(logits, rows, allowed)
    results: list[Sampled] = []
    first = 0
    for sequence in sequences:
        drawn = tokens[first : first + sequence.num_rows]
        kept = _kept(sequence.drafts, drawn)
        top = sequence.sampling.logprobs
        told = () if top is None else token_logprobs(raw[first : first + len(kept)], kept, top)
        results.append(Sampled(kept, sequence.num_drafts, told))
        first += sequence.num_rows
    return results


def _kept(drafts: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
    """The right drafts and the token after them; none where nothing could be drawn."""
    kept: list[int] = []
    for index, token_id in enumerate(drawn):
        if token_id == IMPOSSIBLE:
            break
        kept.append(token_id)
        if index < len(drafts) and token_id != drafts[index]:
            break
    return tuple(kept)
