"""Arguments that depend on a pod's devices, and so differ between the variants of a service."""

from penstock.core.spec.service import ServiceSpec

DEVICE_FLAG, RANKS_FLAG = "--device=", "--tensor-parallel-size="


def device_flags(spec: ServiceSpec) -> list[str]:
    """`--device`, and `--tensor-parallel-size` for several accelerators if the spec does not set it."""
    flags = [f"{DEVICE_FLAG}{spec.resources.device}"]
    if "engine.parallelism.tensor" in spec.settings or tensor_ranks(spec) == 1:
        return flags
    return [*flags, f"{RANKS_FLAG}{tensor_ranks(spec)}"]


def rank_flags(spec: ServiceSpec) -> list[str]:
    """`--tensor-parallel-size` if the spec does not set it.

    A single rank has the flag too: on variants with more accelerators `placement` replaces its value.
    """
    if "engine.parallelism.tensor" in spec.settings:
        return []
    return [f"{RANKS_FLAG}{tensor_ranks(spec)}"]


def num_ranks(spec: ServiceSpec) -> int:
    """Number of ranks of an engine, in all pipeline stages."""
    pipeline: int = spec.settings.get("engine.parallelism.pipeline", 1)
    return tensor_ranks(spec) * pipeline


def tensor_ranks(spec: ServiceSpec) -> int:
    """Number of ranks that split each layer; by default all accelerators of one pipeline stage."""
    pipeline: int = spec.settings.get("engine.parallelism.pipeline", 1)
    default = max(1, spec.resources.num_accelerators // pipeline)
    ranks: int = spec.settings.get("engine.parallelism.tensor", default)
    return ranks
