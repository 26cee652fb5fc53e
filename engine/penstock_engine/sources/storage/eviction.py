"""Chooses the models to evict from a cache, the least recently used first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model of a cache. blobs: size in bytes by key; other models may share them."""

    name: str
    last_used_s: float
    blobs: Mapping[str, int]
    is_in_use: bool = False


def choose_evictions(models: Sequence[CachedModel], excess_bytes: int) -> list[str] | None:
    """Names of the models to evict, so that the cache shrinks by at least excess_bytes.

    None: it cannot, as the others are in use. A blob is removed with the last model that has it.
    """
    evicted: list[str] = []
    rest = sorted(models, key=lambda model: model.last_used_s)
    for model in list(rest):
        if excess_bytes <= 0:
            break
        if model.is_in_use:
            continue
        rest.remove(model)
        kept = {blob for other in rest for blob in other.blobs}
        excess_bytes -= sum(size for blob, size in model.blobs.items() if blob not in kept)
        evicted.append(model.name)
    return evicted if excess_bytes <= 0 else None
