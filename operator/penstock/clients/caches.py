"""Where what can be made again is kept: clusters, binaries, models, compiled modules."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_root() -> Path:
    """`PENSTOCK_CACHE_DIR`, or the user's cache folder for Penstock."""
    chosen = os.environ.get("PENSTOCK_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("penstock")
