"""Unpacks the files of a model from tar archives, which may be hostile, into a folder."""

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.file_names import check_name
from penstock_engine.sources.limits import MIB, FetchLimits
from penstock_engine.sources.selection import WEIGHTS, is_candidate

COPY_BYTES = MIB
MAX_HEADER_BYTES = MIB  # of a long name or of extended attributes, which tarfile holds in memory
LEAST_LIMIT_BYTES = 16 * MIB  # of the unpacked files of a small archive
WHITEOUT = ".wh."
BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


@dataclass(frozen=True, slots=True)
class UnpackedFile:
    """A file of an archive. path: where it was written."""

    name: str
    size_bytes: int
    sha256: str
    path: Path


class _Member(tarfile.TarInfo):
    """A member whose headers are of a bounded size."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        is_header = self.type in (
            tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
        )  # fmt: skip
        if is_header and self.size > MAX_HEADER_BYTES:
            raise _too_large()
        return super()._proc_member(archive)  # type: ignore[misc]


def unpack(
    archive: Path, folder: Path, limits: FetchLimits, check: Callable[[], None]
) -> list[UnpackedFile]:
    """Write the files that a runtime may read into a folder, under other names. Raises FetchError, OSError.

    check: called between blocks; it raises to end the work. Links are no files of a model: those that lead
    out of the archive, or that have the name of such a file, are refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limit = max(int(limits.max_expansion * archive.stat().st_size), LEAST_LIMIT_BYTES)
    found: dict[str, UnpackedFile] = {}
    total_bytes = num_members = 0
    with _opened(archive) as tar:
        for member in _members(tar):
            num_members += 1
            total_bytes += max(0, member.size)
            if num_members > limits.max_files:
                raise FetchError(
                    "TooManyFiles",
                    f"the archive has more than {limits.max_files} files: pack the model alone",
                )
            if total_bytes > min(limit, limits.max_model_bytes):
                raise _too_large()
            name = _checked_name(member, limits)
            if name is not None:
                found[name] = _write(tar, member, name, folder / str(num_members), check)
    return list(found.values())


def model_root(names: list[str]) -> str:
    """The folder of an archive that has the model: the one nearest to the top with weights."""
    weights = [name for name in names if name.endswith(WEIGHTS)]
    nearest = min(weights, key=lambda name: (name.count("/"), name), default="")
    return nearest.rpartition("/")[0]


def _opened(archive: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(archive, mode="r|*", tarinfo=_Member, errorlevel=1)
    except BROKEN as error:
        raise _broken() from error


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Members in their order. Raises FetchError for an archive that is damaged."""
    while True:
        try:
            member = tar.next()
        except BROKEN as error:
            raise _broken() from error
        if member is None:
            return
        tar.members.clear()  # type: ignore[attr-defined]  # they would all stay in memory
        yield member


def _checked_name(member: tarfile.TarInfo, limits: FetchLimits) -> str | None:
    """The name of a member that a runtime may read; None for others. Raises FetchError."""
    name = member.name
    while name.startswith("./"):
        name = name[2:]
    if name in ("", ".") or (member.isdir() and name.rstrip("/") == ""):
        return None
    check_name(name.rstrip("/"), limits)
    is_wanted = is_candidate(name)
    if member.issym() or member.islnk():
        target = member.linkname
        if is_wanted or target.startswith("/") or ".." in target.split("/"):
            raise FetchError(
                "LinkInArchive",
                f"the archive has a link called {name[:80]!r}: pack the files that links lead to",
            )
        return None
    if is_wanted and not member.isreg():
        raise FetchError(
            "NotAFile",
            f"the archive has {name[:80]!r}, which is a device or a pipe: pack files only",
        )
    return name if is_wanted and not name.rpartition("/")[2].startswith(WHITEOUT) else None


def _write(
    tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, path: Path, check: Callable[[], None]
) -> UnpackedFile:
    """Write a member to a path. Raises FetchError, OSError."""
    content = hashlib.sha256()
    source = tar.extractfile(member)
    if source is None:
        raise _broken()
    size_bytes = 0
    with path.open("wb") as file:
        while size_bytes < member.size:
            try:
                block = source.read(COPY_BYTES)
            except BROKEN as error:
                raise _broken() from error
            if not block:
                raise _broken()
            check()
            content.update(block)
            file.write(block)
            size_bytes += len(block)
    return UnpackedFile(name, size_bytes, content.hexdigest(), path)


def _broken() -> FetchError:
    return FetchError(
        "BadArchive",
        "the archive is damaged, or not of tar, tar.gz, tar.bz2 or tar.xz: pack it again",
    )


def _too_large() -> FetchError:
    return FetchError(
        "ArchiveBomb",
        "the archive would unpack to many times its size, as no weights do: pack the model alone",
    )
