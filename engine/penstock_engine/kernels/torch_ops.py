"""RMSNorm, rotary embedding and gated activations in torch, as fast as a CPU computes them."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F

Activate = Callable[[torch.Tensor], torch.Tensor]

# Activations by their names in config.json; gelu_new is the tanh approximation, written out there.
ACTIVATIONS: Mapping[str, Activate] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}


def add_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    *,
    weight_offset: float = 0.0,
) -> torch.Tensor:
    """Residual addition and RMSNorm. Returns a tensor of x's shape and dtype.

    x: [..., size]. residual: of x's shape, updated in place to x + residual, which is normalized;
    None: x is normalized. weight: [size]. weight_offset: added to weight (1 for Gemma); the norm is
    then computed in float32, because bfloat16 is too coarse for 1 + weight.
    """
    if residual is not None:
        x = residual.add_(x)
    if not weight_offset:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, weight.float() + weight_offset, eps).to(x.dtype)


def rotate(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply rotary position embedding. Returns the rotated q and k; the arguments may be overwritten.

    q: [tokens, heads, head_dim], k: [tokens, kv_heads, head_dim]. cos, sin: [tokens, 1, rotary_dim];
    the first rotary_dim numbers of each head are rotated. The first half of sin is negated.
    """
    return _rotate(q, cos, sin), _rotate(k, cos, sin)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotary_dim = cos.shape[-1]
    if rotary_dim < x.shape[-1]:
        return torch.cat((_rotate(x[..., :rotary_dim], cos, sin), x[..., rotary_dim:]), dim=-1)
    return torch.addcmul(x * cos, x.roll(rotary_dim // 2, -1), sin)


def gate(activate: Activate, gate_up: torch.Tensor) -> torch.Tensor:
    """Gated activation: activate(gates) * up. gate_up: [rows, 2 * size], gates first. [rows, size]."""
    gates, up = gate_up.chunk(2, dim=-1)
    return activate(gates) * up
