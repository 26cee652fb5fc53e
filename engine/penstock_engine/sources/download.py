"""Downloads files into the store: parts in parallel, resumed where an earlier fetch ended, and verified."""

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from penstock_engine.sources.deadline import Deadline
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.listing import SourceFile
from penstock_engine.sources.parallel import run_parallel
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.protocols.source import Source
from penstock_engine.sources.ranges import read_range
from penstock_engine.sources.storage.partial_file import Part, PartialFile

# Bytes received after which attempts are counted from zero again: a connection may break now and then.
PROGRESS_BYTES = 1 << 20
# Downloads of a file with a wrong digest: a proxy may damage it once.
MAX_DOWNLOADS = 2


class Download:
    """Downloads files of a source, each to its blob's path."""

    def __init__(self, source: Source, deadline: Deadline, progress: Progress) -> None:
        self._source, self._deadline, self._progress = source, deadline, progress

    def run(self, files: Sequence[tuple[SourceFile, PartialFile, Path]]) -> None:
        """Download files into their partial files, and rename these to the blobs' paths. Raises FetchError.

        The first error ends all downloads.
        """
        todo = list(files)
        for _ in range(MAX_DOWNLOADS):
            todo = self._run_once(todo)
            if not todo:
                return
        file = todo[0][0]
        raise FetchError(
            "WrongDigest",
            f"{file.name} has another digest than the source lists, in {MAX_DOWNLOADS} downloads: it is "
            "damaged at the source, or on the way by a proxy",
        )

    def _run_once(
        self, files: Sequence[tuple[SourceFile, PartialFile, Path]]
    ) -> list[tuple[SourceFile, PartialFile, Path]]:
        """Download files once. Returns those with a wrong digest, with new partial files."""
        transfers = [
            _Transfer(self._source, *file, self._deadline, self._progress) for file in files
        ]
        calls = [
            partial(transfer.fetch, part)
            for transfer in transfers
            for part in transfer.parts or (None,)
        ]
        results = run_parallel(calls, self._deadline)
        return [transfer.renewed() for transfer in results if transfer is not None]


class _Transfer:
    """The download of one file. Its parts are fetched by several threads; the last one verifies it."""

    def __init__(
        self,
        source: Source,
        file: SourceFile,
        partial: PartialFile,
        blob: Path,
        deadline: Deadline,
        progress: Progress,
    ) -> None:
        self._source, self._file, self._partial, self._blob = source, file, partial, blob
        self._deadline, self._progress = deadline, progress
        self._lock = threading.Lock()
        self.parts = partial.missing_parts()
        self._num_missing = len(self.parts)

    def fetch(self, part: Part | None) -> "_Transfer | None":
        """Fetch a part; None: there is none to fetch. Returns self if the file is complete and damaged."""
        try:
            self._deadline.check()
            if part is not None:
                self._fetch_part(part)
            return None if not self._is_last(part) or self._verify() else self
        except OSError as error:
            raise write_failed(error) from error

    def _is_last(self, part: Part | None) -> bool:
        """Enter a part in the journal. Returns whether no other is missing. Raises OSError."""
        with self._lock:
            if part is not None:
                self._partial.finish(part)
                self._num_missing -= 1
            return self._num_missing == 0

    def renewed(self) -> tuple[SourceFile, PartialFile, Path]:
        """The same file, to be downloaded again."""
        return self._file, self._partial, self._blob

    def _fetch_part(self, part: Part) -> None:
        """Fetch a part, in as many attempts as it takes. Raises FetchError, Cancelled, OSError."""
        position, num_attempts = part.start, 0
        while position < part.end:
            start = position
            try:
                position = self._read(position, part.end)
            except _Interrupted as interruption:
                position = interruption.position
                num_attempts = 1 if position - start >= PROGRESS_BYTES else num_attempts + 1
                self._deadline.wait_after(interruption.error, num_attempts)

    def _read(self, start: int, end: int) -> int:
        """Read a range to its end. Raises _Interrupted, Cancelled, OSError."""
        position = start
        chunks = read_range(self._source, self._file, start, end, self._deadline)
        try:
            with closing(chunks):
                for chunk in chunks:
                    self._partial.write(position, chunk)
                    position += len(chunk)
                    self._progress.add(len(chunk))
        except FetchError as error:
            raise _Interrupted(position, error) from error
        return position

    def _verify(self) -> bool:
        """Whether the file has its digest. If so it becomes a blob, otherwise it is emptied."""
        if self._partial.digest() == self._file.digest:
            self._partial.promote(self._blob)
            return True
        self._progress.undo(self._file.size_bytes)
        self._partial.restart()
        return False


class _Interrupted(Exception):
    """A read that ended early. position: of the first byte that is missing."""

    def __init__(self, position: int, error: FetchError) -> None:
        super().__init__(str(error))
        self.position, self.error = position, error


def write_failed(error: OSError) -> FetchError:
    """The error for a failed write to a volume."""
    if error.errno == errno.ENOSPC:
        return FetchError(
            "NoSpace", "the volume is full: make it larger, or lower the cache's limit"
        )
    if error.errno == errno.EDQUOT:
        return FetchError("QuotaExceeded", "the volume's quota is used up: raise it")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return FetchError(
            "NotWritable",
            f"the folder cannot be written to by user {os.geteuid()}: mount it writable, or set its group",
        )
    return FetchError(
        "WriteFailed", f"the volume failed: {os.strerror(error.errno or 0)}", is_retryable=True
    )
