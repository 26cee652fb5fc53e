"""Makes a folder of the cache once, by one of several processes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.local.locks import file_lock


def ensure_folder(cached: Path, make: Callable[[Path], None], say: Callable[[str], None]) -> Path:
    """Return the folder `cached`. If it does not exist, one process creates it atomically with `make`.

    say: called before a wait for that process.
    """
    cached.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(cached.parent / f".{cached.name}.lock", say, f"makes {cached.name}"):
        if not cached.is_dir():
            making = cached.with_name(f".{cached.name}-{os.getpid()}")
            making.mkdir()
            try:
                make(making)
                making.rename(cached)
            finally:
                shutil.rmtree(making, ignore_errors=True)
    return cached
