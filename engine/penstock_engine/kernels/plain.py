"""In torch, as a CPU does it best, what kernels do in one pass."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F

Activate = Callable[[torch.Tensor], torch.Tensor]

# By the names of config.json; gelu_new is the tanh approximation written out.
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
    """x: [..., size]; returns its shape and type. weight: [size].

    residual: of x's shape, becomes x + residual in place and is what is normalised; None: x is.
    weight_offset: added to weight, 1 for Gemma; then products are float32, as 1 + weight has no
    room in bfloat16.
    """
    if residual is not None:
        x = residual.add_(x)
    if not weight_offset:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, weight.float() + weight_offset, eps).to(x.dtype)


def rotate(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """q: [tokens, heads, head_dim], k: [tokens, kv_heads, head_dim]; may be lost.

    cos, sin: [tokens, 1, rotary_dim], for the first numbers of a head, which rotate. sin carries
    the sign of the half that changes places.
    """
    return _rotate(q, cos, sin), _rotate(k, cos, sin)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotary_dim = cos.shape[-1]
    if rotary_dim < x.shape[-1]:
        return torch.cat((_rotate(x[..., :rotary_dim], cos, sin), x[..., rotary_dim:]), dim=-1)
    return torch.addcmul(x * cos, x.roll(rotary_dim // 2, -1), sin)


def gate(activate: Activate, gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up: [rows, 2 * size], gates first. Returns [rows, size]."""
    gates, up = gate_up.chunk(2, dim=-1)
    return activate(gates) * up
