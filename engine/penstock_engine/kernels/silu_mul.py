# mypy: allow-incomplete-defs
"""The gate of an MLP: an activation of one half of a row times the other half."""

import torch
import torch.nn.functional as F

from penstock_engine.kernels.runtime import jit, sigmoid, tl

BLOCK = 1024


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up: [rows, 2 * size], gates first. Returns [rows, size] of its type, from float32."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def gelu_tanh_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """As silu_mul_reference, with the tanh approximation of GELU."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As silu_mul_reference, of contiguous rows."""
    return _launch(gate_up, is_gelu=False)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As gelu_tanh_mul_reference, of contiguous rows."""
    return _launch(gate_up, is_gelu=True)


def _launch(gate_up: torch.Tensor, *, is_gelu: bool) -> torch.Tensor:
    assert gate_up.is_contiguous()
    num_rows, size = len(gate_up), gate_up.shape[1] // 2
    output = gate_up.new_empty(num_rows, size)
    _gate_kernel[(num_rows, -(-size // BLOCK))](gate_up, output, size, BLOCK=BLOCK, IS_GELU=is_gelu)
    return output


@jit
def _gate_kernel(gate_up, output, size, BLOCK: tl.constexpr, IS_GELU: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < size
    at = gate_up + row * 2 * size + column
    gate = tl.load(at, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=is_column, other=0.0).to(tl.float32)
    inner = gate
    if IS_GELU:
        # x (1 + tanh u) / 2 is x sigmoid(2 u), where u = sqrt(2 / pi) (x + 0.044715 x^3).
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    result = gate * sigmoid(inner) * up
    tl.store(output + row * size + column, result.to(output.dtype.element_ty), mask=is_column)
