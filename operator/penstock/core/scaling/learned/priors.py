"""Priors of the iteration time, by kind of hardware.

A prior that is wrong by more than a factor of two is scaled to the first window of a real engine. Later
windows correct each term. The rows are for a model of about 8 billion weights, on CPUs of half a billion.
"""

import re
from collections.abc import Mapping

from penstock.core.engine_time.iteration import IterationModel

CPU = IterationModel(base_s=0.04, prefill_token_s=2e-3, sequence_s=4e-3, kv_token_s=2e-6)
GPU = IterationModel(base_s=0.02, prefill_token_s=8e-5, sequence_s=5e-5, kv_token_s=1.5e-7)
# Compute slices of a whole GPU; a mig-1g device has one of them.
MIG_SLICES = 7
MIG = re.compile(r"/mig-(\d+)g\.")
# Memory bandwidth and dense 16-bit operations per second, as multiples of an A100's, whose times are in GPU.
# Source: the makers' data sheets (A100 SXM 80 GB: 2.04 TB/s, 312 TFLOPS).
KINDS: Mapping[str, tuple[float, float]] = {
    "b200": (3.9, 7.2),
    "h200": (2.35, 3.17),
    "h100": (1.64, 3.17),
    "a100": (1.0, 1.0),
    "l40s": (0.42, 1.16),
    "a10g": (0.29, 0.22),
    "a10": (0.29, 0.4),
    "l4": (0.15, 0.39),
    "v100": (0.44, 0.4),
    "t4": (0.16, 0.21),
}
WORD = re.compile(r"[a-z0-9]+")


def prior(
    accelerator: tuple[str, int] | None, node_labels: Mapping[str, str] | None = None
) -> IterationModel:
    """Prior for a kind of engine.

    accelerator: extended resource and count; None: CPUs. node_labels: labels that its nodes must have. One
    may name the kind of GPU, as nvidia.com/gpu.product does.
    """
    if accelerator is None:
        return CPU
    slices = MIG.search(accelerator[0])
    part = accelerator[1] * (int(slices[1]) / MIG_SLICES if slices else 1.0)
    bandwidth, operations = _kind(node_labels or {})
    return IterationModel(
        GPU.base_s / bandwidth,
        GPU.prefill_token_s / operations,
        GPU.sequence_s / operations,
        GPU.kv_token_s / bandwidth,
    ).times(1 / part)


def _kind(node_labels: Mapping[str, str]) -> tuple[float, float]:
    words = {word for value in node_labels.values() for word in WORD.findall(value.lower())}
    return next((KINDS[kind] for kind in KINDS if kind in words), (1.0, 1.0))
