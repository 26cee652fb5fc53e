"""What a request changes in the logits before anything is drawn.

Each touches only the entries it is about, so that a request without wishes costs nothing.
"""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.row import Row


def forbid_and_favour(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """allowed_token_ids, bad_words, min_tokens and logit_bias, in place. logits: [rows, vocab].

    Token ids beyond the vocabulary are passed over.
    """
    for index, row in enumerate(rows):
        sampling = row.sampling
        if sampling.allowed_token_ids is not None:
            allowed = _within(sampling.allowed_token_ids, logits)
            kept = logits[index, allowed]
            logits[index] = -torch.inf
            logits[index, allowed] = kept
        forbidden = _next_of_bad_words(row)
        if row.num_output_tokens < sampling.min_tokens:
            forbidden |= row.sequence.ending_token_ids
        if forbidden:
            logits[index].index_fill_(0, _within(forbidden, logits), -torch.inf)
        if sampling.logit_bias:
            bias = {t: b for t, b in sampling.logit_bias.items() if t < logits.shape[1]}
            favoured = _within(frozenset(bias), logits)
            added = torch.tensor([bias[t] for t in sorted(bias)], dtype=logits.dtype)
            logits[index].index_add_(0, favoured, send(added, logits.device))


def penalise(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Repetition over prompt and output, frequency and presence over the output; in place.

    The formulas are OpenAI's (frequency, presence) and those of CTRL (Keskar et al., 2019:
    repetition), as vLLM applies them.
    """
    for index, row in enumerate(rows):
        sampling = row.sampling
        if not sampling.has_penalties:
            continue
        tokens = np.array(row.tokens)
        if sampling.repetition_penalty != 1.0:
            seen = send(torch.from_numpy(np.unique(tokens)), logits.device)
            values = logits[index, seen]
            factor = sampling.repetition_penalty
            logits[index, seen] = torch.where(values > 0, values / factor, values * factor)
        written, counts = np.unique(tokens[row.sequence.num_prompt_tokens :], return_counts=True)
        penalties = sampling.frequency_penalty * counts + sampling.presence_penalty
        penalised = send(torch.from_numpy(written), logits.device)
        logits[index, penalised] -= send(
            torch.from_numpy(penalties).to(logits.dtype), logits.device
        )


def _next_of_bad_words(row: Row) -> frozenset[int]:
    """The tokens that would complete a bad word here."""
    bad_words = row.sampling.bad_words
    if not bad_words:
        return frozenset()
    longest = max(map(len, bad_words)) - 1
    output = row.tokens[row.sequence.num_prompt_tokens :]
    tail = output[len(output) - longest :] if longest < len(output) else output
    return frozenset(
        word[-1]
        for word in bad_words
        if len(word) - 1 <= len(tail) and list(word[:-1]) == tail[len(tail) - len(word) + 1 :]
    )


def _within(token_ids: frozenset[int], logits: torch.Tensor) -> torch.Tensor:
    """Those that the vocabulary has, rising: int64 [tokens], on the device of logits."""
    known = sorted(token_id for token_id in token_ids if token_id < logits.shape[1])
    return send(torch.tensor(known, dtype=torch.int64), logits.device)
