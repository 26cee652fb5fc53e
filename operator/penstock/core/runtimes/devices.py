"""Arguments that depend on a pod's devices, and so differ between the variants of a service."""

from penstock.core.spec.service import ServiceSpec
from penstock.core.spec.settings import PIPELINE_PARALLEL, TENSOR_PARALLEL

DEVICE_FLAG, RANKS_FLAG = "--device=", "--tensor-parallel-size="


def device_flags(spec: ServiceSpec) -> list[str]:
    """`--device`, and `--tensor-parallel-size` for several accelerators if the spec does not set it."""
    flags = [f"{DEVICE_FLAG}{spec.resources.device}"]
    if TENSOR_PARALLEL in spec.settings or tensor_ranks(spec) == 1:
        return flags
    return [*flags, f"{RANKS_FLAG}{tensor_ranks(spec)}"]


def rank_flags(spec: ServiceSpec) -> list[str]:
    """`--tensor-parallel-size` if the spec does not set it.

    A single rank has the flag too: on variants with more accelerators `placement` replaces its value.
    """
    if TENSOR_PARALLEL in spec.settings:
        return []
    return [f"{RANKS_FLAG}{tensor_ranks(spec)}"]


def num_ranks(spec: ServiceSpec) -> int:
    """Number of ranks of an engine, in all pipeline stages."""
    pipeline: int = spec.settings.get(PIPELINE_PARALLEL, 1)
    return tensor_ranks(spec) * pipeline


def tensor_ranks(spec: ServiceSpec) -> int:
    """Number of ranks that split each layer; by default all accelerators of one pipeline stage."""
    pipeline: int = spec.settings.get(PIPELINE_PARALLEL, 1)
    default = max(1, spec.resources.num_accelerators // pipeline)
    ranks: int = spec.settings.get(TENSOR_PARALLEL, default)
    return ranks
