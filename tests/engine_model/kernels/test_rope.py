"""Tests of the rotary position embedding kernel."""

import pytest
import torch
from tests.support.engine.kernel_references import rope_reference
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from penstock_engine.kernels.rope import rope

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("num_tokens", "heads", "kv_heads", "head_dim", "rotary_dim"),
    [(1, 1, 1, 64, 64), (5, 6, 2, 80, 80), (9, 7, 1, 96, 48), (3, 32, 8, 128, 34)],
)
def test_equals_the_reference(
    num_tokens: int, heads: int, kv_heads: int, head_dim: int, rotary_dim: int,
    dtype: torch.dtype, device: str,
) -> None:  # fmt: skip
    """Queries and keys are rotated in place within a joint projection, whose values stay unchanged."""
    torch.manual_seed(heads)
    projected = torch.randn(num_tokens, heads + 2 * kv_heads, head_dim, device=device).to(dtype)
    cos, sin = torch.randn(2, num_tokens, rotary_dim, device=device)[..., rotary_dim // 2 :]
    expected, actual = projected.clone(), projected.clone()
    for turn, rows in ((rope_reference, expected), (rope, actual)):
        q, k, _ = rows.split((heads, kv_heads, kv_heads), dim=1)
        turn(q, k, cos, sin)
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(actual, expected, **close)
    assert torch.equal(actual[..., rotary_dim:], projected[..., rotary_dim:])


def test_turns_as_llama_does() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(5, 4, 16), torch.randn(5, 2, 16)
    angles = torch.randn(5, 8)
    cos, sin = (f(torch.cat((angles, angles), -1))[None] for f in (torch.cos, torch.sin))
    expected = apply_rotary_pos_emb(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cos, sin)
    rope_reference(q, k, angles.cos(), angles.sin())
    for turned, right in zip((q, k), expected, strict=True):
        torch.testing.assert_close(turned, right[0].transpose(0, 1))
