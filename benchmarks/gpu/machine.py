"""The machine's own figures: versions, the bandwidth of a copy, the rate of a large product."""

import platform
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import torch
from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.timing import seconds_each

COPY_BYTES = 4 * 2**30
PRODUCT_SIDE = 8192
PACKAGES = ("torch", "triton", "transformers")


def items(context: Context) -> Iterator[Item]:
    """The single item `machine`, whose figures the other steps are given."""
    yield Item("machine", lambda: measure(context))


def measure(context: Context) -> Record:
    """Measure. copy_bytes_per_s: read and written bytes of a copy. product_flops: bf16, random numbers."""
    side, num_bytes = (PRODUCT_SIDE, COPY_BYTES) if not context.is_small else (256, 2**20)
    source = torch.empty(num_bytes // 4, device=context.device).normal_()
    copy_s = seconds_each(partial(torch.empty_like(source).copy_, source), context.device)
    a, b = (torch.randn(side, side, device=context.device).bfloat16() for _ in range(2))
    product_s = seconds_each(partial(torch.mm, a, b), context.device)
    return {
        "copy_bytes_per_s": 2 * num_bytes / copy_s,
        "product_flops": 2 * side**3 / product_s,
        **describe(context.device),
    }


def describe(device: str) -> Record:
    """Names and versions of the machine and of what it runs."""
    facts: Record = {"device": device, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = None
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        facts |= {
            "gpu": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }
    return facts
