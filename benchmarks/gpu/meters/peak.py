"""Peak FLOP/s of dense bfloat16 products by the datasheets of GPUs. Imports no torch."""

from collections.abc import Mapping
from typing import Any

# Parts of names that torch gives, the most special ones first.
PEAK_FLOPS = (
    ("H100 PCIe", 756e12), ("H100 NVL", 835e12), ("H100", 989e12), ("H200", 989e12),
    ("B200", 2250e12), ("A100", 312e12), ("L40S", 362e12),
)  # fmt: skip


def flop_rates(flops: float, seconds: float, machine: Mapping[str, Any]) -> dict[str, float]:
    """FLOP/s, and its shares of the measured rate of a large product and of the GPU's peak.

    machine: the figures of the step `machine`; a share is left out if what it refers to is unknown. The
    peak of a GPU that is not listed is taken to be the measured rate.
    """
    rate = flops / seconds
    figures = {"flops": flops, "flops_per_s": rate}
    product = machine.get("product_flops")
    if product:
        figures["product_share"] = rate / product
    name = str(machine.get("gpu", ""))
    peak = next((value for part, value in PEAK_FLOPS if part in name), product)
    if peak:
        figures["peak_share"] = rate / peak
    return figures
