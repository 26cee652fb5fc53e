"""What a model computes, by device: the one place that chooses between torch and Triton."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from penstock_engine.kernels.fused_add_norm import fused_add_norm
from penstock_engine.kernels.plain import ACTIVATIONS, Activate, add_norm, gate, rotate
from penstock_engine.kernels.recording import GraphRecorder, Recorder
from penstock_engine.kernels.rope import rope
from penstock_engine.kernels.silu_mul import gelu_tanh_mul, silu_mul


@dataclass(frozen=True, slots=True)
class Operations:
    """add_norm, rotate: as plain.add_norm, plain.rotate. gates: as plain.gate, by the name of the
    activation.

    has_kernels: whether Triton's run. Attention, experts, adapters, weights of few bits and draws
    ask this, for there torch does not the same in other ways but something else.
    recorder: of computations that are launched again and again; None: launching costs little.
    """

    add_norm: Callable[..., torch.Tensor]
    rotate: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    gates: Mapping[str, Activate]
    has_kernels: bool
    recorder: Callable[[], Recorder] | None = None


def _rotate_in_place(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    half = cos.shape[-1] // 2  # the second half of sin has its sign
    rope(q, k, cos[:, 0, half:], sin[:, 0, half:], None)
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
    return BY_DEVICE[torch.device(device).type]
