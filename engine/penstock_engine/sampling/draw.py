"""The draw in torch: grammar, penalties, temperature, min_p, top_k, top_p, a number for each row."""

from collections.abc import Sequence

import torch

from penstock_engine.core.noise import uniform
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.bias import penalise
from penstock_engine.sampling.grammar import Allowed
from penstock_engine.sampling.row import Row

IMPOSSIBLE = -1


def draw(logits: torch.Tensor, rows: Sequence[Row], allowed: Allowed | None) -> torch.Tensor:
    """logits: float32 [rows, vocabulary], overwritten. Returns int64 [rows], the best where greedy.

    IMPOSSIBLE where nothing is left to draw, or the logits are no numbers.
    """
    if allowed is not None:
        allowed.mask(logits)
    penalise(logits, rows)
    best = logits.max(-1)
    chosen = best.indices
    drawn = [index for index, row in enumerate(rows) if not row.sampling.is_greedy]
    if drawn:
        params = [rows[index].sampling for index in drawn]
        numbers = [uniform(rows[i].sampling.seed, rows[i].position) for i in drawn]
        chosen[drawn] = _inverse(probabilities(logits[drawn], params), numbers)
    # Weights that are no numbers have no sum, and the search in it ends behind the last token.
    is_token = (best.values > -torch.inf) & (chosen < logits.shape[1])
    return chosen.where(is_token, IMPOSSIBLE)


def probabilities(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Temperature, then min_p, then top_k, then top_p, as vLLM orders them."""
    scaled = logits / _column([p.temperature for p in params], logits)
    if any(p.min_p > 0 for p in params):
        floor = _column([p.min_p for p in params], logits).log() + scaled.amax(-1, keepdim=True)
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    if any(p.top_k > 0 or p.top_p < 1 for p in params):
        scaled = keep_top(scaled, params)
    return scaled.softmax(-1)


def _inverse(weights: torch.Tensor, numbers: Sequence[float]) -> torch.Tensor:
    """The token whose stretch of [0, 1) a number falls into; never one of weight 0.

    In float64: in float32, the sum over a large vocabulary would lose its small weights.
    """
    ends = weights.double().cumsum(-1)
    marks = _column(numbers, ends) * ends[:, -1:]
    tokens: torch.Tensor = torch.searchsorted(ends, marks, right=True)[:, 0]
    return tokens


def keep_top(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """scaled: [rows, vocabulary]. The same with -inf for what top_k and top_p leave out."""
    vocab_size = scaled.shape[1]
    counts = [min(p.top_k or vocab_size, vocab_size) for p in params]
    top_k, top_p = _column(counts, scaled), _column([p.top_p for p in params], scaled)
    ordered, token_ids = scaled.topk(max(counts))
    rank = torch.arange(ordered.shape[1], device=scaled.device)
    ordered = ordered.masked_fill(rank >= top_k, -torch.inf)
    weights = ordered.softmax(-1)
    # A token stays while those before it have not reached top_p; the first always stays.
    before = weights.cumsum(-1) - weights
    is_out = (before >= top_p) & (top_p < 1) & (rank > 0)
    kept = torch.full_like(scaled, -torch.inf)
    return kept.scatter_(1, token_ids, ordered.masked_fill(is_out, -torch.inf))


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return send(torch.tensor(values, dtype=like.dtype), like.device)[:, None]
