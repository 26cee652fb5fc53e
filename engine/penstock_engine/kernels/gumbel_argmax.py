# mypy: allow-incomplete-defs
"""Samples a token of each row with the Gumbel-max trick (Triton).

The argmax of logits plus Gumbel noise is token i with probability softmax(logits)[i], so that neither
a sort, nor a sum, nor a synchronization is needed. The noise of a token depends only on the row's
seed and position and on the token id (Philox-4x32-10, Salmon et al. 2011), so that a seed gives the
same text in any batch.
"""

import torch

from penstock_engine.kernels.runtime import jit, loop_bound, tl

BLOCK = 1024  # counters per iteration, each of four tokens: Philox returns four words a call


def gumbel_argmax(
    logits: torch.Tensor, is_drawn: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Sample a token for each row (Triton). Returns int64 [rows].

    logits: float32 [rows, vocabulary], contiguous rows; -inf for tokens that are not allowed. is_drawn:
    bool [rows]; False: take the largest logit instead, the first of equals. seeds, positions: int64
    [rows]; positions from 0 to 2**32 - 1.
    """
    num_rows, vocab_size = logits.shape
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    tokens = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    _gumbel_argmax_kernel[(num_rows,)](
        logits,
        is_drawn.view(torch.uint8),
        seeds,
        positions,
        tokens,
        vocab_size,
        logits.stride(0),
        BLOCK=BLOCK,
        num_warps=8,
    )
    return tokens


@jit(varying=("seeds", "positions"))
def _gumbel_argmax_kernel(
    logits, is_drawn, seeds, positions, tokens, vocab_size, stride, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    is_noisy = tl.load(is_drawn + row) != 0
    seed = tl.load(seeds + row)
    position = tl.load(positions + row).to(tl.uint32)
    quarter = (vocab_size + 3) // 4
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_token = tl.full([BLOCK], 2147483647, tl.int32)
    for start in range(0, loop_bound(quarter), BLOCK):
        counter = start + tl.arange(0, BLOCK)
        zero = counter.to(tl.uint32) * 0
        words = tl.philox(seed, counter.to(tl.uint32), zero + position, zero, zero)
        for index in tl.static_range(4):
            token = counter + index * quarter
            is_token = (counter < quarter) & (token < vocab_size)
            x = tl.load(logits + row * stride + token, mask=is_token, other=float("-inf"))
            x = tl.where(is_noisy, x + _gumbel(words[index]), x)
            is_better = is_token & ((x > best) | ((x == best) & (token < best_token)))
            best = tl.where(is_better, x, best)
            best_token = tl.where(is_better, token, best_token)
    winners = tl.where(best == tl.max(best, 0), best_token, 2147483647)
    winner = tl.min(winners, 0)
    tl.store(tokens + row, tl.where(winner < vocab_size, winner, 0).to(tl.int64))


@jit
def _gumbel(word):
    """Gumbel noise from a random word: -log(-log(1 - u)), accurate for the small u that win."""
    u = tl.minimum((word.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.9999999403953552)
    small = u * (1 + u * (0.5 + u * (0.3333333333333333 + u * 0.25)))
    return -tl.log(tl.where(u < 0.01, small, -tl.log(1 - u)))
