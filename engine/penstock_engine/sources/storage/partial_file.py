"""A file that is being downloaded in parts, and the journal of the parts that were written."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock_engine.sources.listing import Digest, SourceFile

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a file's bytes. end: excluded."""

    index: int
    start: int
    end: int


def divide(size_bytes: int, part_bytes: int) -> Iterator[Part]:
    """The parts of a file, none of an empty one."""
    for index, start in enumerate(range(0, size_bytes, part_bytes)):
        yield Part(index, start, min(start + part_bytes, size_bytes))


class PartialFile:
    """A file of its final size with missing parts, and beside it the journal of those that were written.

    Parts are written by several threads, each its own. A process that was killed has lost the parts that
    were not in the journal.
    """

    def __init__(self, path: Path, file: SourceFile, part_bytes: int) -> None:
        """Open or create it. Raises OSError."""
        self.path, self._file = path, file
        self._journal_path = path.with_name(f"{path.name}.parts")
        part_bytes = part_bytes if file.has_ranges else max(1, file.size_bytes)
        self._parts = tuple(divide(file.size_bytes, part_bytes))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._header = json.dumps({"size_bytes": file.size_bytes, "part_bytes": part_bytes})
        self._done = self._read_journal()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(self._descriptor, file.size_bytes)
            self._journal = self._journal_path.open("a")
            if not self._done:
                self.restart()
        except BaseException:
            os.close(self._descriptor)
            raise

    def restart(self) -> None:
        """Forget all parts, so that they are fetched again. Raises OSError."""
        self._done.clear()
        self._journal.truncate(0)
        self._journal.write(self._header + "\n")
        self._journal.flush()

    def _read_journal(self) -> set[int]:
        """Indices of the parts that an earlier process has written; none if it divided the file otherwise."""
        if not self.path.exists() or self.path.stat().st_size != self._file.size_bytes:
            return set()
        try:
            first, *rest = self._journal_path.read_text().split("\n")
        except (OSError, ValueError):
            return set()
        # Text after the last line break was not written to its end.
        numbers = {int(line) for line in rest[:-1] if line.isdecimal()}
        return numbers & set(range(len(self._parts))) if first == self._header else set()

    def missing_parts(self) -> list[Part]:
        return [part for part in self._parts if part.index not in self._done]

    @property
    def done_bytes(self) -> int:
        return sum(part.end - part.start for part in self._parts if part.index in self._done)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write bytes at a place. Raises OSError."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[written:], offset + written

    def finish(self, part: Part) -> None:
        """Enter a part in the journal. Raises OSError."""
        if self._file.digest is None:
            # A crash of the machine may lose a part, which only a digest would show.
            os.fdatasync(self._descriptor)
        self._journal.write(f"{part.index}\n")
        self._journal.flush()
        self._done.add(part.index)

    def digest(self) -> Digest | None:
        """The digest of the content, by the algorithm of the source; None if the source has no digests."""
        if self._file.digest is None:
            return None
        return compute_digest(self.path, self._file.digest)

    def promote(self, blob: Path) -> None:
        """Give the whole file its final name, after its bytes are on the disk. Raises OSError."""
        os.fsync(self._descriptor)
        self.close()
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.path, blob)
        self._journal_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close it. What it has stays for the next process. A second call does nothing."""
        with suppress(OSError):
            self._journal.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def compute_digest(path: Path, expected: Digest) -> Digest:
    """The digest of a file by the algorithm of another digest. Raises OSError."""
    if expected.algorithm == "sha256":
        content = hashlib.sha256()
    else:
        content = hashlib.sha1(usedforsecurity=False)
        content.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb", buffering=0) as file:
        while block := file.read(READ_BYTES):
            content.update(block)
    return Digest(expected.algorithm, content.hexdigest())
