"""Samples tokens from logits, and verifies drafts.

A row is one position of one sequence. A sequence with d drafts has d + 1 rows; its draft i is
accepted if row i samples it. So drafts change neither the distribution nor, for a given seed, the
tokens: a draft only saves the step that would have sampled it. (Speculative sampling of Leviathan et
al., 2023, with a draft distribution of probability 1 for the draft.)
"""

from collections.abc import Sequence

import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, SequenceOutput
from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.transfer import fetch, send
from penstock_engine.sampling.bias import mask_and_bias
from penstock_engine.sampling.grammar import GrammarMasks, grammar_masks
from penstock_engine.sampling.kernel_sampling import sample_with_kernels
from penstock_engine.sampling.logprobs import LogprobBuffer
from penstock_engine.sampling.request_state import RequestStates
from penstock_engine.sampling.row import Row, rows_of
from penstock_engine.sampling.sampling_sizes import rows_at_once
from penstock_engine.sampling.torch_sampling import sample_with_torch

# The token of a row whose logits are NaN.
CORRUPT = -2


class SampledTokens:
    """Sampled tokens of all rows, which are being copied to the host.

    tokens: int64 [rows], on the device; negative if no token could be sampled.
    """

    def __init__(
        self,
        sequences: Sequence[ScheduledSequence],
        tokens: torch.Tensor,
        logprobs: LogprobBuffer | None,
    ) -> None:
        """logprobs: of the rows whose sequences request them."""
        self.tokens = tokens
        self._sequences = sequences
        self._fetched = fetch(tokens)
        self._logprobs = logprobs

    def results(self) -> list[SequenceOutput]:
        """Outputs of all sequences, in order; without tokens if a request allows none.

        Call it after a CompletionEvent that was created after this object.
        """
        tokens: list[int] = self._fetched.tolist()
        results: list[SequenceOutput] = []
        first = first_row = 0
        for sequence in self._sequences:
            drawn = tokens[first : first + sequence.num_rows]
            kept = _accepted(sequence.drafts, drawn)
            first += sequence.num_rows
            is_corrupt = drawn[0] == CORRUPT
            if self._logprobs is None or sequence.sampling.logprobs is None:
                results.append(SequenceOutput(kept, sequence.num_drafts, is_corrupt=is_corrupt))
                continue
            end_row = first_row + len(kept)
            if given := sequence.sampling.logprob_token_ids:
                logprobs = self._logprobs.rows_of_named(first_row, end_row, given)
            else:
                logprobs = self._logprobs.rows(first_row, end_row, sequence.sampling.logprobs)
            results.append(
                SequenceOutput(kept, sequence.num_drafts, logprobs, is_corrupt=is_corrupt)
            )
            first_row += sequence.num_rows
        return results


def sample(
    logits: torch.Tensor,
    sequences: Sequence[ScheduledSequence],
    states: RequestStates | None = None,
) -> SampledTokens:
    """Sample tokens for all rows, in parts to bound the memory.

    logits: [rows, vocabulary], the rows of all `sequences` in order; may be overwritten. states: of the
    requests, kept between steps; None: new ones.
    """
    vocab_size = logits.shape[1]
    owned = (states or RequestStates()).get(sequences, vocab_size, logits.device)
    rows = [
        row
        for sequence, state in zip(sequences, owned, strict=True)
        for row in rows_of(sequence, state)
    ]
    allowed = grammar_masks(sequences, vocab_size)
    drawn = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
    logprobs = _logprob_buffer(rows, vocab_size, logits.device)
    num_rows = rows_at_once(vocab_size, logits.device.type)
    for first in range(0, len(rows), num_rows):
        part = slice(first, first + num_rows)
        own_allowed = None if allowed is None else allowed.select(part)
        drawn[part] = _draw(logits[part], rows[part], own_allowed, logprobs)
    if logprobs is not None:
        logprobs.fetch()
    return SampledTokens(sequences, drawn, logprobs)


def _draw(
    logits: torch.Tensor,
    rows: Sequence[Row],
    allowed: GrammarMasks | None,
    logprobs: LogprobBuffer | None,
) -> torch.Tensor:
    """Sample tokens for some rows. logprobs: filled for rows that request log-probabilities."""
    requested = [index for index, row in enumerate(rows) if row.sampling.logprobs is not None]
    raw = logits
    logits = logits.to(torch.float32, copy=bool(requested))
    # Checked before any sampling parameter: a tiny temperature makes any logit infinite.
    are_numbers = logits.amax(-1) < torch.inf
    mask_and_bias(logits, rows)
    choose = sample_with_kernels if operations(logits.device).has_kernels else sample_with_torch
    tokens = choose(logits, rows, allowed).where(are_numbers, CORRUPT)
    if logprobs is not None and requested:
        del logits
        if len(requested) < len(rows):
            places = send(torch.tensor(requested), raw.device)
            raw, token_ids = raw[places], tokens[places]
        else:
            token_ids = tokens
        given = _given_tokens([rows[index].sampling for index in requested], logprobs.num_given)
        logprobs.fill(
            raw, token_ids.clamp(min=0), None if given is None else send(given, raw.device)
        )
    return tokens


def _logprob_buffer(
    rows: Sequence[Row], vocab_size: int, device: torch.device
) -> LogprobBuffer | None:
    """A buffer for the rows whose requests want log-probabilities; None if there are none."""
    params = [row.sampling for row in rows if row.sampling.logprobs is not None]
    if not params:
        return None
    top = min(max(p.logprobs or 0 for p in params), vocab_size)
    num_given = max(len(p.logprob_token_ids) for p in params)
    return LogprobBuffer(len(params), top, device, num_given=num_given)


def _given_tokens(params: Sequence[SamplingParams], num_given: int) -> torch.Tensor | None:
    """Tokens that requests name, int64 [rows, num_given], padded with 0; None if there are none."""
    if not num_given:
        return None
    rows = [[*p.logprob_token_ids, *[0] * (num_given - len(p.logprob_token_ids))] for p in params]
    return torch.tensor(rows)


def _accepted(drafts: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
    """The accepted drafts and the token after them; none if nothing could be sampled."""
    kept: list[int] = []
    for index, token_id in enumerate(drawn):
        if token_id < 0:
            break
        kept.append(token_id)
        if index < len(drafts) and token_id != drafts[index]:
            break
    return tuple(kept)
