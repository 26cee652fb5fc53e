"""The draw by Triton's kernels, with nothing of the vocabulary's size on its way to the device.

Its noise is another than draw's, and as independent of the batch: a seed draws the same tokens on
all devices with kernels, and other ones on the CPU.
"""

from collections.abc import Sequence

import numpy as np
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.kernels.adjust_logits import Penalties, adjust_logits
from penstock_engine.kernels.gumbel_argmax import gumbel_argmax
from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.draw import IMPOSSIBLE, keep_top
from penstock_engine.sampling.grammar import Allowed
from penstock_engine.sampling.row import Row

SEED_BITS = 64
UNLIMITED = SamplingParams(max_tokens=1)


def race(logits: torch.Tensor, rows: Sequence[Row], allowed: Allowed | None) -> torch.Tensor:
    """Sample with Triton kernels; arguments and result are those of `draw`."""
    device = logits.device
    params = [row.sampling for row in rows]
    factors = [
        [0.0 if p.is_greedy else p.temperature for p in params],
        [0.0 if p.is_greedy else p.min_p for p in params],
    ]
    temperatures, min_ps = send(torch.tensor(factors), device)
    words = None
    if allowed is not None:
        words = send(torch.from_numpy(allowed.for_all(len(rows))), device)
    penalties = penalties_of(rows, logits.shape[1], device)
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
    return chosen.where(is_possible, IMPOSSIBLE)


def penalties_of(rows: Sequence[Row], vocab_size: int, device: torch.device) -> Penalties | None:
    """None where no row has any. Tokens beyond the vocabulary do not count."""
    penalised = [index for index, row in enumerate(rows) if row.sampling.has_penalties]
    if not penalised:
        return None
    slots = np.full(len(rows), -1)
    slots[penalised] = range(len(penalised))
    seen = [rows[index].token_counts for index in penalised]
    # Places in [slots, vocabulary].
    starts = [slot * vocab_size + own.token_ids for slot, own in enumerate(seen)]
    places = send(torch.from_numpy(np.concatenate(starts)), device)
    times = np.concatenate([own.counts for own in seen]).astype(np.int32)
    size = (len(penalised), vocab_size)
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
    """The same bits as an int64."""
    seed %= 1 << SEED_BITS
    return seed - (1 << SEED_BITS) if seed >> (SEED_BITS - 1) else seed
