"""Sampling with Triton kernels, without copying tensors of the vocabulary's size to the device.

Its random numbers differ from those of torch_sampling, and also do not depend on the batch: a seed
gives the same tokens on all devices with kernels, and different ones on the CPU.
"""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.kernels.adjust_logits import Penalties, adjust_logits
from penstock_engine.kernels.gumbel_argmax import gumbel_argmax
from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.grammar import GrammarMasks
from penstock_engine.sampling.row import Row
from penstock_engine.sampling.torch_sampling import NO_TOKEN, keep_top

SEED_BITS = 64
UNLIMITED = SamplingParams(max_tokens=1)


def sample_with_kernels(
    logits: torch.Tensor, rows: Sequence[Row], allowed: GrammarMasks | None
) -> torch.Tensor:
    """Sample with Triton kernels; arguments and result are those of sample_with_torch."""
    device = logits.device
    params = [row.sampling for row in rows]
    factors = [
        [0.0 if p.is_greedy else p.temperature for p in params],
        [0.0 if p.is_greedy else p.min_p for p in params],
    ]
    temperatures, min_ps = send(torch.tensor(factors), device)
    words = None
    if allowed is not None:
        words = send(torch.from_numpy(allowed.dense(len(rows))), device)
    penalties = make_penalties(rows, logits.shape[1], device)
    adjust_logits(logits, temperatures, min_ps, penalties=penalties, allowed=words)
    is_possible = logits.amax(-1) > -torch.inf
    keep_top(logits, [UNLIMITED if p.is_greedy else p for p in params])
    numbers = [
        [not p.is_greedy for p in params],
        [_signed(p.seed) for p in params],
        [row.position for row in rows],
    ]
    is_drawn, seeds, positions = send(torch.tensor(numbers, dtype=torch.int64), device)
    chosen = gumbel_argmax(logits, is_drawn.bool(), seeds, positions)
    return chosen.where(is_possible, NO_TOKEN)


def make_penalties(rows: Sequence[Row], vocab_size: int, device: torch.device) -> Penalties | None:
    """Build the penalties of a batch; None if no row has any.

    Tokens beyond the vocabulary are ignored.
    """
    penalized = [index for index, row in enumerate(rows) if row.sampling.has_penalties]
    if not penalized:
        return None
    slots = np.full(len(rows), -1)
    slots[penalized] = range(len(penalized))
    seen = [rows[index].token_counts for index in penalized]
    # Places in [slots, vocabulary].
    starts = [slot * vocab_size + own.token_ids for slot, own in enumerate(seen)]
    places = send(torch.from_numpy(np.concatenate(starts)), device)
    times = np.concatenate([own.counts for own in seen]).astype(np.int32)
    size = (len(penalized), vocab_size)
    is_seen = torch.zeros(size, dtype=torch.bool, device=device)
    is_seen.view(-1).index_fill_(0, places, True)
    counts = torch.zeros(size, dtype=torch.int32, device=device)
    counts.view(-1).index_copy_(0, places, send(torch.from_numpy(times), device))
    params = [row.sampling for row in rows]
    factors = [
        [p.repetition_penalty for p in params],
        [p.presence_penalty for p in params],
        [p.frequency_penalty for p in params],
    ]
    repetition, presence, frequency = send(torch.tensor(factors), device)
    slot_of_row = send(torch.from_numpy(slots), device)
    return Penalties(repetition, presence, frequency, counts, is_seen, slot_of_row)


def _signed(seed: int) -> int:
    """Reinterpret an unsigned 64-bit seed as int64."""
    seed %= 1 << SEED_BITS
    return seed - (1 << SEED_BITS) if seed >> (SEED_BITS - 1) else seed
