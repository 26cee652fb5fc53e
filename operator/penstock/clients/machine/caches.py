"""The cache folder for data that can be made again: clusters, binaries, models, results of tests."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_root() -> Path:
    """Return the cache folder: `PENSTOCK_CACHE_DIR`, or the user's cache folder for Penstock."""
    chosen = os.environ.get("PENSTOCK_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("penstock")
