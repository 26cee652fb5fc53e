"""Frees space in a store: evicts models, and removes blobs without a model and abandoned downloads."""

import json
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.storage.eviction import CachedModel, choose_evictions
from penstock_engine.sources.storage.lease import is_held
from penstock_engine.sources.storage.model_folder import MARKER_NAME, ModelFile
from penstock_engine.sources.storage.store import Store

# Age in seconds at which a download without a process, or a blob without a model, is abandoned: a fetch that
# was killed is tried again within minutes.
ABANDONED_S = 24 * 3600.0
# The same age in seconds where no other space can be freed. A process that was killed while it evicted a
# model leaves that model's blobs. Longer than pauses between attempts at a fetch: kubelet's are 5 minutes.
ABANDONED_IF_FULL_S = 15 * 60.0
GIB = 1 << 30


def make_room(
    store: Store, needed_bytes: int, limits: FetchLimits, own: Collection[str] = ()
) -> None:
    """Free space for a fetch, below the cache's limit and on the volume. needed_bytes: that it will write.

    own: blobs that it downloads. What others still have to download is reserved for them. Raises FetchError
    (NoSpace, CacheLimit), OSError.
    """
    reserved_bytes = _reserved_bytes(store, own)
    free_bytes = shutil.disk_usage(store.root).free - limits.spare_bytes - reserved_bytes
    excess_bytes = needed_bytes - free_bytes
    if limits.cache_bytes is not None:
        used = used_bytes(store) + reserved_bytes
        excess_bytes = max(excess_bytes, used + needed_bytes - limits.cache_bytes)
    if needed_bytes <= 0 or excess_bytes <= 0:
        return
    excess_bytes -= _remove_abandoned(store, ABANDONED_S)
    models = list(_models(store))
    evicted = choose_evictions(models, excess_bytes)
    if evicted is None:
        excess_bytes -= _remove_abandoned(store, ABANDONED_IF_FULL_S)
        evicted = choose_evictions(models, excess_bytes)
    if evicted is None:
        raise _no_room(needed_bytes, free_bytes, limits)
    removed = [store.remove_model(Path(name)) for name in evicted]
    _remove_unlinked(store, {blob for m in models if m.name in evicted for blob in m.blobs})
    if not all(removed):
        raise _no_room(needed_bytes, free_bytes, limits)


def _no_room(needed_bytes: int, free_bytes: int, limits: FetchLimits) -> FetchError:
    needed = f"{needed_bytes / GIB:.2f} GiB"
    if needed_bytes > free_bytes:
        return FetchError(
            "NoSpace",
            f"the fetch needs {needed} and the volume has {max(0, free_bytes) / GIB:.2f} GiB left: give it "
            f"at least {(needed_bytes - free_bytes) / GIB:.2f} GiB more",
        )
    limit = f"{(limits.cache_bytes or 0) / GIB:.2f} GiB"
    return FetchError(
        "CacheLimit",
        f"the fetch needs {needed}, and models in use leave less of the cache's limit of {limit}: raise "
        "--cache-limit-bytes",
        is_retryable=True,
    )


def used_bytes(store: Store) -> int:
    """Bytes of all blobs and downloads."""
    total = 0
    for path in [*store.blobs.rglob("*"), *(store.root / "partial").rglob("*")]:
        with suppress(FileNotFoundError):
            status = path.stat()
            total += min(status.st_size, status.st_blocks * 512) if path.is_file() else 0
    return total


def _reserved_bytes(store: Store, own: Collection[str]) -> int:
    """Bytes that others still write into files which they are downloading. own: blobs to leave out."""
    total, own_paths = 0, {store.partial_path(blob) for blob in own}
    for path in (store.root / "partial").glob("*.partial"):
        with suppress(FileNotFoundError):
            status = path.stat()
            missing_bytes = status.st_size - status.st_blocks * 512
            if missing_bytes > 0 and path not in own_paths:
                total += missing_bytes if is_held(store.root / "locks" / path.stem) else 0
    return total


def _models(store: Store) -> Iterator[CachedModel]:
    for marker in (store.root / "models").glob(f"*/*/{MARKER_NAME}"):
        with suppress(OSError, ValueError, TypeError, LookupError):
            files = [ModelFile(**each) for each in json.loads(marker.read_bytes())["files"]]
            yield CachedModel(
                name=str(marker.parent),
                last_used_s=marker.stat().st_mtime,
                blobs={file.blob: file.size_bytes for file in files},
                is_in_use=store.is_in_use(marker.parent),
            )


def _remove_unlinked(store: Store, blobs: set[str]) -> None:
    """Remove those of the blobs that no model has any longer."""
    kept = {blob for model in _models(store) for blob in model.blobs}
    for blob in blobs - kept:
        if not is_held(store.lease_path(blob)):
            store.blob_path(blob).unlink(missing_ok=True)


def _remove_abandoned(store: Store, age_s: float) -> int:
    """Remove downloads, and blobs without a model, that are abandoned at this age. Returns their bytes."""
    for folder in (store.root / "models").glob("*/*"):
        is_whole = (folder / MARKER_NAME).exists()
        if not is_whole and _is_older(folder, age_s) and not store.is_in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)
    kept = {store.blob_path(blob) for model in _models(store) for blob in model.blobs}
    held = {path.name for path in (store.root / "locks").glob("[!.]*") if is_held(path)}
    found = [*(store.root / "partial").glob("*"), *store.blobs.glob("*/*")]
    freed = 0
    for path in found:
        name = path.name.partition(".partial")[0]
        with suppress(FileNotFoundError):
            num_bytes = path.stat().st_blocks * 512
            if path in kept or name in held or not _is_older(path, age_s):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # of an archive that was being unpacked
            else:
                path.unlink()
            freed += num_bytes
    return freed


def _is_older(path: Path, age_s: float) -> bool:
    return time.time() - path.stat().st_mtime > age_s
