"""Reads the answer to a fetch by the server of a node's cache, and checks each of its lines."""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_engine.contract.model_source import ModelSource, parse_model_source
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.file_names import check_distinct
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.node_cache.connection import NodeCacheError, printable
from penstock_engine.sources.progress import ProgressState
from penstock_engine.sources.resolution import check_pin
from penstock_engine.sources.selection import SELECTION_VERSION
from penstock_engine.sources.storage.model_folder import Manifest, parse_manifest

# Longest line, in bytes: the manifest of as many files as a model may have, with names of 1.5 KiB.
MAX_LINE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class NodeCacheModel:
    """A model of a node's cache. paths: of its files by name, below the mount.

    downloaded_bytes, num_cache_hits: of the server's fetch for this request.
    """

    manifest: Manifest
    paths: Mapping[str, Path]
    downloaded_bytes: int
    num_cache_hits: int


def read_line(line: bytes, source: ModelSource, mount: Path) -> ProgressState | NodeCacheModel:
    """Read a line of an answer. Raises NodeCacheError for a failed fetch, and for an invalid line."""
    if not line.endswith(b"\n"):
        raise NodeCacheError("its server ended the connection", is_disconnect=True)
    try:
        content = json.loads(line)
        if "failure" in content:
            failure = content["failure"]
            raise NodeCacheError(printable(f"{failure['reason']}: {failure['message']}"))
        if "progress" in content:
            return _progress(content["progress"])
        return _model(content["result"], source, mount)
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        FetchError,
        RecursionError,
    ) as error:
        raise NodeCacheError(f"its server sent an invalid answer: {printable(error)}") from error


def _progress(content: Any) -> ProgressState:
    return ProgressState(
        done_bytes=_count(content["done_bytes"]),
        total_bytes=_count(content["total_bytes"]),
        downloaded_bytes=_count(content["downloaded_bytes"]),
        bytes_per_s=float(_count(content["bytes_per_s"])),
    )


def _model(content: Any, source: ModelSource, mount: Path) -> NodeCacheModel:
    manifest = parse_manifest(content["manifest"])
    if manifest.selection_version != SELECTION_VERSION:
        raise ValueError("it selects files as another version of Penstock does")
    if not 0 < len(manifest.files) <= FetchLimits().max_files:
        raise ValueError(f"a model of {len(manifest.files)} files")
    check_distinct(file.name for file in manifest.files)
    _check_is_of(source, parse_model_source(manifest.resolved_uri))
    paths = {}
    for file in manifest.files:
        path = mount.absolute() / "blobs" / file.blob
        _check_file(path, mount, file.size_bytes)
        paths[file.name] = path
    return NodeCacheModel(
        manifest, paths, _count(content["downloaded_bytes"]), _count(content["num_cache_hits"])
    )


def _check_is_of(source: ModelSource, resolved: ModelSource) -> None:
    """Raise ValueError, FetchError if a revision is not of the source that was requested."""
    is_same_place = (resolved.scheme, resolved.host, resolved.name, resolved.path) == (
        source.scheme, source.host, source.name, source.path,
    )  # fmt: skip
    if not is_same_place or not resolved.is_resolved or (source.is_resolved and resolved != source):
        raise ValueError("another model than was requested")
    check_pin(source, resolved)


def _check_file(path: Path, mount: Path, size_bytes: int) -> None:
    """Raise ValueError if a file of the cache is not there, is elsewhere, or has another size."""
    try:
        status = os.lstat(path)
        is_there = stat.S_ISREG(status.st_mode) and status.st_size == size_bytes
        is_below = path.resolve().is_relative_to(mount.resolve() / "blobs")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
    if not is_there or not is_below:
        raise ValueError(f"{path} is not a file of {size_bytes} bytes in the cache")


def _count(value: Any) -> int:
    if not isinstance(value, int | float) or not 0 <= value < 1 << 60:
        raise ValueError(f"{value!r} is no count of bytes or files")
    return int(value)
