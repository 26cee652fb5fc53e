"""Arguments for the devices of an engine's pod, which differ between variants of a service."""

from penstock.core.spec.service import ServiceSpec
from penstock.core.spec.settings import PIPELINE_PARALLEL, TENSOR_PARALLEL

DEVICE_FLAG, RANKS_FLAG = "--device=", "--tensor-parallel-size="


def device_flags(spec: ServiceSpec) -> list[str]:
    """Flags of the device, and of the ranks that share several of them."""
    flags = [f"{DEVICE_FLAG}{spec.resources.device}"]
    if TENSOR_PARALLEL in spec.settings or _tensor_ranks(spec) == 1:
        return flags
    return [*flags, f"{RANKS_FLAG}{_tensor_ranks(spec)}"]


def rank_flags(spec: ServiceSpec) -> list[str]:
    """The flag of the ranks alone; also for one, so that a variant's number can take its place."""
    if TENSOR_PARALLEL in spec.settings:
        return []
    return [f"{RANKS_FLAG}{_tensor_ranks(spec)}"]


def _tensor_ranks(spec: ServiceSpec) -> int:
    """Ranks that split each layer by default: all accelerators of a stage of the pipeline."""
    pipeline: int = spec.settings.get(PIPELINE_PARALLEL, 1)
    return max(1, spec.resources.num_accelerators // pipeline)
