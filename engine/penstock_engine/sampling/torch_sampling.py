"""Sampling in torch: grammar, penalties, temperature, min_p, top_k, top_p, then a random token."""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.core.noise import uniform
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.bias import apply_penalties
from penstock_engine.sampling.grammar import GrammarMasks
from penstock_engine.sampling.row import Row

NO_TOKEN = -1
# Rows with a top_k up to this use torch.topk on a device; the others need a full sort.
MAX_TOPK_CANDIDATES = 1024

Floats = np.ndarray[tuple[int], np.dtype[np.float32]]


def sample_with_torch(
    logits: torch.Tensor, rows: Sequence[Row], allowed: GrammarMasks | None
) -> torch.Tensor:
    """Sample a token for each row, the most probable one for greedy requests. Returns int64 [rows].

    NO_TOKEN for rows in which no token is allowed or logits are NaN. logits: float32 [rows,
    vocabulary], overwritten. allowed: grammar masks; None: no row has a grammar.
    """
    if allowed is not None:
        allowed.apply(logits)
    apply_penalties(logits, rows)
    best = logits.max(-1)
    chosen = best.indices
    drawn = [index for index, row in enumerate(rows) if not row.sampling.is_greedy]
    if drawn:
        params = [rows[index].sampling for index in drawn]
        numbers = [uniform(rows[i].sampling.seed, rows[i].position) for i in drawn]
        if len(drawn) < len(rows):
            logits = logits[drawn]
        chosen[drawn] = _inverse(probabilities(logits, params), numbers)
    # If weights are NaN, the search returns an index beyond the last token.
    is_token = (best.values > -torch.inf) & (chosen < logits.shape[1])
    return chosen.where(is_token, NO_TOKEN)


def probabilities(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Probabilities after temperature, min_p, top_k and top_p, in this order, as in vLLM.

    logits: [rows, vocabulary], overwritten.
    """
    logits /= _column([p.temperature for p in params], logits)
    if any(p.min_p > 0 for p in params):
        floor = _column([p.min_p for p in params], logits).log() + logits.amax(-1, keepdim=True)
        logits.masked_fill_(logits < floor, -torch.inf)
    keep_top(logits, params)
    return logits.softmax(-1)


def _inverse(weights: torch.Tensor, numbers: Sequence[float]) -> torch.Tensor:
    """Inverse-transform sampling: the tokens whose intervals of [0, 1) contain the numbers.

    A token of weight 0 is never returned. The cumulative sum is in float64, because float32 would lose
    the small weights of a large vocabulary.
    """
    ends = weights.cumsum(-1, dtype=torch.float64)
    marks = _column(numbers, ends) * ends[:, -1:]
    tokens: torch.Tensor = torch.searchsorted(ends, marks, right=True)[:, 0]
    return tokens


def keep_top(logits: torch.Tensor, params: Sequence[SamplingParams]) -> None:
    """Set logits that top_k and top_p exclude to -inf, in place. logits: [rows, vocabulary]."""
    vocab_size = logits.shape[1]
    limited = [index for index, p in enumerate(params) if 0 < p.top_k < vocab_size or p.top_p < 1]
    if logits.device.type == "cpu":
        for index in limited:
            keep_top_of_row(logits[index].numpy(), params[index])
        return
    # torch.topk of few tokens takes a tenth of a sort's time, so rows with a small top_k are handled
    # apart.
    few = [index for index in limited if 0 < params[index].top_k <= MAX_TOPK_CANDIDATES]
    rest = [index for index in limited if not 0 < params[index].top_k <= MAX_TOPK_CANDIDATES]
    for rows in filter(None, (few, rest)):
        keep_top_in_order(logits, rows, params)


def keep_top_in_order(
    logits: torch.Tensor, rows: Sequence[int], params: Sequence[SamplingParams]
) -> None:
    """Apply top_k and top_p to some rows in place, without reading data back from the device."""
    places = send(torch.tensor(rows), logits.device)
    own = [params[index] for index in rows]
    counts = [min(p.top_k or logits.shape[1], logits.shape[1]) for p in own]
    top_k, top_p = _column(counts, logits), _column([p.top_p for p in own], logits)
    scaled = logits[places]
    ordered, token_ids = scaled.topk(max(counts))
    rank = torch.arange(ordered.shape[1], device=logits.device)
    ordered.masked_fill_(rank >= top_k, -torch.inf)
    weights = ordered.softmax(-1)
    # A token stays while those before it have not reached top_p; the first always stays.
    before = weights.cumsum(-1).sub_(weights)
    ordered.masked_fill_((before >= top_p) & (top_p < 1) & (rank > 0), -torch.inf)
    logits.index_copy_(0, places, scaled.fill_(-torch.inf).scatter_(1, token_ids, ordered))


def keep_top_of_row(logits: Floats, params: SamplingParams) -> None:
    """Apply top_k and top_p to one row on the CPU, in place.

    It uses numpy, which sorts 152,000 numbers in a fiftieth of torch's time.
    """
    count = min(params.top_k or len(logits), len(logits))
    ordered = logits if count == len(logits) else np.partition(logits, -count)[-count:]
    ordered = np.sort(ordered)[::-1]
    if params.top_p < 1:
        with np.errstate(invalid="ignore"):  # a row of NaN, or in which no token is allowed
            ends = np.exp(ordered - ordered[0]).cumsum(dtype=np.float64)
            # A token stays while those before it have not reached top_p; the first always stays.
            count = 1 + int((ends[:-1] < params.top_p * ends[-1]).sum())
    least = ordered[count - 1]
    num_above = int((logits > least).sum())
    equal = np.flatnonzero(logits == least)
    logits[logits < least] = -np.inf
    logits[equal[count - num_above :]] = -np.inf


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return send(torch.tensor(values, dtype=like.dtype), like.device)[:, None]
