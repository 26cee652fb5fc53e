"""Applies a request's token restrictions, logit bias and penalties to logits, in torch.

Only the affected entries are changed, so that a request without such parameters costs nothing.
"""

from collections.abc import Sequence

import torch

from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.row import Row


def mask_and_bias(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Apply allowed_token_ids, bad_words, min_tokens and logit_bias to logits in place.

    logits: [rows, vocabulary]. Token ids beyond the vocabulary are ignored.
    """
    for index, row in enumerate(rows):
        sampling = row.sampling
        if sampling.allowed_token_ids is not None:
            logits[index].masked_fill_(row.state.excluded, -torch.inf)
        forbidden = row.state.bad_words.next_tokens(row.output_tail)
        if row.num_output_tokens < sampling.min_tokens:
            forbidden |= row.sequence.ending_token_ids
        if forbidden:
            known = [token_id for token_id in forbidden if token_id < logits.shape[1]]
            places = send(torch.tensor(known, dtype=torch.int64), logits.device)
            logits[index].index_fill_(0, places, -torch.inf)
        if sampling.logit_bias:
            token_ids, added = row.state.bias
            logits[index].index_add_(0, token_ids, added)


def apply_penalties(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Apply penalties to logits in place: repetition for tokens of prompt and output, frequency and
    presence for tokens of the output.

    The formulas are OpenAI's (frequency, presence) and those of CTRL (Keskar et al., 2019:
    repetition), as in vLLM.
    """
    for index, row in enumerate(rows):
        sampling = row.sampling
        if not sampling.has_penalties:
            continue
        seen = row.token_counts
        token_ids = send(torch.from_numpy(seen.token_ids), logits.device)
        counts = send(torch.from_numpy(seen.counts), logits.device)
        values = logits[index, token_ids]
        factor = sampling.repetition_penalty
        if factor != 1.0:
            values = torch.where(values > 0, values / factor, values * factor)
        values -= sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
        logits[index, token_ids] = values
