# mypy: allow-incomplete-defs
"""Gated activations of an MLP: activation of a row's first half times its second half."""

import torch

from penstock_engine.kernels.runtime import jit, sigmoid, tl

BLOCK = 1024


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SiLU gate (Triton): silu(gates) * up. gate_up: [rows, 2 * size], contiguous. [rows, size]."""
    return _launch(gate_up, is_gelu=False)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """GELU gate (Triton): gelu(gates) * up. gate_up: [rows, 2 * size], contiguous. [rows, size]."""
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
