"""Peak FLOP/s of dense bfloat16 products by the datasheets of GPUs. Imports no torch."""

from collections.abc import Mapping
from typing import Any

# Parts of names that torch gives, the most special ones first.
PEAK_FLOPS = (
    ("H100 PCIe", 756e12), ("H100 NVL", 835e12), ("H100", 989e12), ("H200", 989e12),
    ("B200", 2250e12), ("A100", 312e12), ("L40S", 362e12),
)  # fmt: skip


def peak_flops(machine: Mapping[str, Any]) -> float:
    """Peak of the machine's GPU; the measured rate of a large product if the GPU is not listed.

    machine: the figures of the step `machine`.
    """
    name = str(machine.get("gpu", ""))
    for part, flops in PEAK_FLOPS:
        if part in name:
            return flops
    return float(machine["product_flops"])
