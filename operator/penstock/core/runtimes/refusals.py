"""Refuses settings that a service's runtime or its number of accelerators does not support."""

from collections.abc import Iterator

from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.service import ServiceSpec


def refused_settings(spec: ServiceSpec) -> Iterator[str]:
    """Yield a sentence for each setting that is not supported, with the field's name."""
    yield from runtime_of(spec.settings).refusals(spec.settings)
    for variant, placed in spec.placed.items():
        yield from _refused_parallelism(variant, placed)


def _refused_parallelism(variant: str, spec: ServiceSpec) -> Iterator[str]:
    """Yield a sentence if the number of ranks is not the number of accelerators."""
    count = spec.resources.num_accelerators
    pipeline = spec.settings.get("engine.parallelism.pipeline", 1)
    tensor = spec.settings.get("engine.parallelism.tensor")
    where = f"spec.variants[{variant}].resources" if variant else "spec.resources"
    if not count:
        return
    if tensor is None and count % pipeline:
        yield (
            f"spec.engine.parallelism.pipeline is {pipeline}, which does not divide the {count} "
            f"accelerators of {where}.limits"
        )
    elif tensor is not None and tensor * pipeline != count:
        yield (
            f"spec.engine.parallelism needs {tensor * pipeline} accelerators, tensor times pipeline, but "
            f"{where}.limits has {count}"
        )
