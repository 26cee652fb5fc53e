"""Where local clusters live."""

from pathlib import Path

from penstock.adapters.caches import cache_root


def clusters_root() -> Path:
    return cache_root() / "clusters"
