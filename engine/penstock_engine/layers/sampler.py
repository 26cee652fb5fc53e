"""From logits to token ids."""

from collections.abc import Sequence

import torch

from penstock_engine.core.sampling import SamplingParams

# Odd, near 2**64 / golden ratio: consecutive positions of one seed land far apart.
POSITION_STRIDE = 0x9E3779B97F4A7C15


def sample(
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    positions: Sequence[int],
    forbidden: Sequence[frozenset[int]],
    generator: torch.Generator,
) -> list[int]:
    """logits: [rows, vocabulary], of the token at `positions[row]`. One token id for each row.

    The draw of a row with a seed depends on its seed, position and logits only; `generator`
    serves the others.
    """
    logits = logits.float()
    for row, token_ids in enumerate(forbidden):
        known = [token_id for token_id in token_ids if token_id < logits.shape[1]]
        logits[row, known] = -torch.inf
    chosen = logits.argmax(-1)
    drawn_rows = [row for row, p in enumerate(params) if not p.is_greedy]
    if drawn_rows:
        drawn_params = [params[row] for row in drawn_rows]
        probabilities = _probabilities(logits[drawn_rows], drawn_params)
        noise = torch.empty_like(probabilities).exponential_(generator=generator)
        for index, (row, p) in enumerate(zip(drawn_rows, drawn_params, strict=True)):
            if p.seed is not None:
                generator_of_row = _generator(p.seed, positions[row], logits.device)
                noise[index].exponential_(generator=generator_of_row)
        # Of independent clocks with these rates, the first to ring: a draw without a host sync.
        chosen[drawn_rows] = (probabilities / noise).argmax(-1)
    tokens: list[int] = chosen.tolist()
    return tokens


def _generator(seed: int, position: int, device: torch.device) -> torch.Generator:
    generator = torch.Generator(device)
    return generator.manual_seed((seed + position * POSITION_STRIDE) % 2**63)


def _probabilities(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Temperature, then min_p, then top_k, then top_p, as vLLM orders them."""
    scaled = logits / _column([p.temperature for p in params], logits)
    if any(p.min_p > 0 for p in params):
        probabilities = scaled.softmax(-1)
        floor = probabilities.amax(-1, keepdim=True) * _column([p.min_p for p in params], logits)
        scaled = scaled.masked_fill(probabilities < floor, -torch.inf)
    if any(p.top_k > 0 or p.top_p < 1 for p in params):
        scaled = _keep_top(scaled, params)
    return scaled.softmax(-1)


def _keep_top(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    vocab_size = scaled.shape[1]
    top_k = _column([p.top_k or vocab_size for p in params], scaled)
    top_p = _column([p.top_p for p in params], scaled)
    ordered, token_ids = scaled.sort(-1, descending=True)
    rank = torch.arange(vocab_size, device=scaled.device)
    ordered = ordered.masked_fill(rank >= top_k, -torch.inf)
    probabilities = ordered.softmax(-1)
    # A token stays while those before it have not reached top_p; the first always stays.
    before = probabilities.cumsum(-1) - probabilities
    is_out = (before >= top_p) & (top_p < 1) & (rank > 0)
    return torch.empty_like(scaled).scatter_(1, token_ids, ordered.masked_fill(is_out, -torch.inf))


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
