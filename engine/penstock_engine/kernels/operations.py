"""Chooses between torch and Triton implementations of a model's operations, by device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from penstock_engine.kernels.cuda_graph import GraphRecorder, Recorder
from penstock_engine.kernels.fused_add_norm import fused_add_norm
from penstock_engine.kernels.rope import rope
from penstock_engine.kernels.silu_mul import gelu_tanh_mul, silu_mul
from penstock_engine.kernels.torch_ops import ACTIVATIONS, Activate, add_norm, gate, rotate


@dataclass(frozen=True, slots=True)
class Operations:
    """Implementations for one type of device.

    add_norm, rotate: with the arguments of torch_ops.add_norm and torch_ops.rotate. gates: gated
    activations (torch_ops.gate) by the activation's name in config.json. has_kernels: whether Triton
    kernels run; attention, experts, adapters, quantized weights and sampling check it, because they
    use another algorithm without kernels. recorder: creates a recorder of CUDA graphs; None: the
    device has none.
    """

    add_norm: Callable[..., torch.Tensor]
    rotate: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    gates: Mapping[str, Activate]
    has_kernels: bool
    recorder: Callable[[], Recorder] | None = None


def _rotate_in_place(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    half = cos.shape[-1] // 2  # the second halves, because sin is negated in the first
    rope(q, k, cos[:, 0, half:], sin[:, 0, half:])
    return q, k


_TORCH_GATES = {name: partial(gate, activate) for name, activate in ACTIVATIONS.items()}
TORCH = Operations(add_norm, rotate, _TORCH_GATES, has_kernels=False)
TRITON = Operations(
    fused_add_norm,
    _rotate_in_place,
    {
        **_TORCH_GATES,
        "silu": silu_mul,
        "gelu_new": gelu_tanh_mul,
        "gelu_pytorch_tanh": gelu_tanh_mul,
    },
    has_kernels=True,
    recorder=GraphRecorder,
)
BY_DEVICE = {"cpu": TORCH, "cuda": TRITON}


def operations(device: torch.device | str) -> Operations:
    """The implementations for a device: torch on the CPU, Triton on CUDA."""
    return BY_DEVICE[torch.device(device).type]
