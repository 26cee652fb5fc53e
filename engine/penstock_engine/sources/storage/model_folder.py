"""The folder of a model: links to its files, and a marker that the model is whole."""

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock_engine.sources.file_names import check_name
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.selection import SELECTION_VERSION

MARKER_NAME = ".penstock-model.json"
# Pattern of a blob's key. Keys are used as paths, and any other one could lead out of the store.
BLOB = re.compile(r"(sha256|git-sha1|version)/[0-9a-f]{40,64}")
# Errors that say that a hard link is impossible: on this file system, to another one, or one more.
NO_HARD_LINK = (
    errno.EXDEV,
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EMLINK,
    errno.ENOSYS,
)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model. name: relative, with slashes. blob: its key in the store."""

    name: str
    size_bytes: int
    blob: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of the marker of a whole model. resolved_uri: of the revision that the files are of."""

    resolved_uri: str
    files: tuple[ModelFile, ...]
    selection_version: int = SELECTION_VERSION

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a whole model in a folder; None if it is not there, or not whole."""
    try:
        manifest = parse_manifest(json.loads((folder / MARKER_NAME).read_bytes()))
        for file in manifest.files:
            if (folder / file.name).stat().st_size != file.size_bytes:
                return None
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return manifest if manifest.selection_version == SELECTION_VERSION else None


def parse_manifest(content: Any) -> Manifest:
    """Read a manifest from JSON. Raises FetchError for names, ValueError, TypeError, LookupError."""
    files = tuple(ModelFile(**each) for each in content["files"])
    for file in files:
        if not isinstance(file.name, str) or not isinstance(file.size_bytes, int):
            raise TypeError("a file needs a name and a size")
        check_name(file.name, FetchLimits())
        if not BLOB.fullmatch(file.blob):
            raise ValueError("a file has no key of a blob")
    return Manifest(str(content["resolved_uri"]), files, content["selection_version"])


def link_files(
    folder: Path,
    files: Sequence[ModelFile],
    paths: Mapping[str, Path],
    *,
    are_symbolic: bool = False,
) -> None:
    """Put a link to each file into a folder, and remove the files of an earlier model. Raises OSError.

    paths: of the files by name. are_symbolic: whether all links are; otherwise only those are that cannot be
    hard. The marker is removed first: until `write_manifest`, the folder has no model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_earlier(folder, {file.name for file in files})
    for file in files:
        place = folder / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        _link(paths[file.name], place, is_symbolic=are_symbolic)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Mark a folder as a whole model: the last step. Raises OSError."""
    for each in {
        folder,
        *(parent for file in manifest.files for parent in _folders(folder, file.name)),
    }:
        _sync_folder(each)
    temporary = folder / f"{MARKER_NAME}.{secrets.token_hex(4)}"
    with temporary.open("w") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / MARKER_NAME)
    _sync_folder(folder)


def remove_marker(folder: Path) -> None:
    """Mark a folder as one without a whole model. Raises OSError."""
    (folder / MARKER_NAME).unlink(missing_ok=True)


def remove_others(folder: Path, kept: Collection[str], say: Callable[[str], None]) -> None:
    """Remove the fetched models beside a folder, such as earlier versions of the same adapter.

    kept: names of folders that stay. So do links, and folders without the marker of a model. say: called
    with a sentence about each folder that cannot be removed; the next call tries again.
    """
    for other in sorted(folder.parent.iterdir()):
        if other.name in (folder.name, *kept) or other.is_symlink():
            continue
        if not (other / MARKER_NAME).is_file():
            continue
        try:
            shutil.rmtree(other)
        except OSError as error:
            say(f"{other} was not removed: {error.strerror}")


def _remove_earlier(folder: Path, names: set[str]) -> None:
    """Remove the marker, and files of the earlier model that the new one does not have."""
    try:
        content = json.loads((folder / MARKER_NAME).read_bytes())
        earlier = [str(file["name"]) for file in content["files"]]
    except (OSError, ValueError, TypeError, LookupError):
        earlier = []
    remove_marker(folder)
    for name in earlier:
        if name not in names and ".." not in name.split("/") and not name.startswith("/"):
            (folder / name).unlink(missing_ok=True)


def _link(source: Path, place: Path, *, is_symbolic: bool) -> None:
    """Create a link to a file at a place, or replace atomically what is there. Raises OSError."""
    with suppress(OSError):
        if not is_symbolic and os.path.samefile(source, place):
            return
    temporary = place.with_name(f".{secrets.token_hex(8)}.link")
    if is_symbolic:
        temporary.symlink_to(source)
    else:
        _link_hard(source, temporary)
    os.replace(temporary, place)


def _link_hard(source: Path, place: Path) -> None:
    """Make a hard link, or a symbolic one where the file system has none. Raises OSError."""
    try:
        os.link(source, place, follow_symlinks=True)
    except OSError as error:
        if error.errno not in NO_HARD_LINK:
            raise
        place.symlink_to(source.resolve())


def _folders(folder: Path, name: str) -> Iterable[Path]:
    """Folders between a model's folder and one of its files."""
    parts = name.split("/")[:-1]
    return (folder.joinpath(*parts[: count + 1]) for count in range(len(parts)))


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
