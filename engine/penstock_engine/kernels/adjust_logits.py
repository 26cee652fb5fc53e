# mypy: allow-incomplete-defs
"""Adjusts logits before sampling: grammar mask, penalties, temperature, min-p (Triton).

The order is vLLM's. Top-k and top-p are applied afterwards, because they need sorted logits.
"""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.runtime import jit, loop_bound, tl

BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Penalties:
    """Penalty parameters of the rows of a batch, and the tokens they apply to.

    repetition, presence, frequency: float32 [rows]; 1, 0 and 0 have no effect. counts: int32 [slots,
    vocabulary], how often each token was generated. is_in_prompt: bool [slots, vocabulary]; for
    generated tokens it may have either value. slots: int64 [rows], the slot of each row; negative: no
    penalties.
    """

    repetition: torch.Tensor
    presence: torch.Tensor
    frequency: torch.Tensor
    counts: torch.Tensor
    is_in_prompt: torch.Tensor
    slots: torch.Tensor


def adjust_logits(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    min_ps: torch.Tensor,
    *,
    penalties: Penalties | None = None,
    allowed: torch.Tensor | None = None,
) -> None:
    """Apply grammar masks, penalties, temperatures and min-p to logits in place (Triton).

    logits: float32 [rows, vocabulary]; rows must be contiguous. temperatures: float32 [rows]; 0: no
    division. min_ps: float32 [rows]; logits of tokens less probable than this fraction of the most
    probable one become -inf; 0: none. allowed: int32 [rows, words], bit i of word w for token 32 w + i;
    logits of tokens whose bit is 0 become -inf.
    """
    num_rows, vocab_size = logits.shape
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    p = penalties
    assert p is None or p.counts.shape[1] == p.is_in_prompt.shape[1] == vocab_size
    assert p is None or (p.counts.is_contiguous() and p.is_in_prompt.is_contiguous())
    _adjust_logits_kernel[(num_rows,)](
        logits,
        temperatures,
        min_ps,
        None if p is None else p.repetition,
        None if p is None else p.presence,
        None if p is None else p.frequency,
        None if p is None else p.counts,
        None if p is None else p.is_in_prompt.view(torch.uint8),
        None if p is None else p.slots,
        allowed,
        vocab_size,
        logits.stride(0),
        0 if allowed is None else allowed.stride(0),
        BLOCK=BLOCK,
        num_warps=8,
    )


@jit(
    varying=(
        "temperatures",
        "min_ps",
        "repetitions",
        "presences",
        "frequencies",
        "slots",
        "allowed",
    )
)
def _adjust_logits_kernel(
    logits,
    temperatures,
    min_ps,
    repetitions,
    presences,
    frequencies,
    counts,
    is_in_prompt,
    slots,
    allowed,
    vocab_size,
    stride,
    allowed_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    min_p = tl.load(min_ps + row)
    divisor = tl.where(temperature > 0, temperature, 1.0)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, loop_bound(vocab_size), BLOCK):
        token = start + tl.arange(0, BLOCK)
        is_token = token < vocab_size
        at = logits + row * stride + token
        x = tl.load(at, mask=is_token, other=float("-inf"))
        if allowed is not None:
            word = tl.load(allowed + row * allowed_stride + token // 32, mask=is_token, other=0)
            x = tl.where((word >> (token % 32)) & 1 != 0, x, float("-inf"))
        if slots is not None:
            slot = tl.load(slots + row)
            is_known = token < tl.where(slot >= 0, vocab_size, 0)
            seen = slot * vocab_size + token
            count = tl.load(counts + seen, mask=is_known, other=0).to(tl.float32)
            in_prompt = tl.load(is_in_prompt + seen, mask=is_known, other=0)
            repetition = tl.load(repetitions + row)
            repeated = tl.where(x > 0, x / repetition, x * repetition)
            x = tl.where((count > 0) | (in_prompt > 0), repeated, x)
            x -= tl.load(frequencies + row) * count
            x -= tl.where(count > 0, tl.load(presences + row), 0.0)
        x = x / divisor
        largest = tl.maximum(largest, x)
        tl.store(at, x, mask=is_token)
    if min_p > 0:
        # A ratio of probabilities is exp(a - b), so no sum over the vocabulary is needed.
        floor = tl.max(largest, 0) + tl.log(min_p)
        for start in range(0, loop_bound(vocab_size), BLOCK):
            token = start + tl.arange(0, BLOCK)
            at = logits + row * stride + token
            x = tl.load(at, mask=token < vocab_size, other=0.0)
            tl.store(at, float("-inf"), mask=(token < vocab_size) & (x < floor))
