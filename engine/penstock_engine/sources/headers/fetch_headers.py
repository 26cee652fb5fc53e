"""Fetches the parts of a model that a check reads: whole texts, and sparse files with headers of weights."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from penstock_engine.sources.deadline import Deadline
from penstock_engine.sources.download import Download, write_failed
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers.gguf_header import has_whole_header
from penstock_engine.sources.limits import MIB, FetchLimits
from penstock_engine.sources.listing import SourceFile
from penstock_engine.sources.parallel import run_parallel
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.protocols.opening import open_source
from penstock_engine.sources.protocols.source import Source
from penstock_engine.sources.ranges import read_range
from penstock_engine.sources.resolution import check_pin, parse_source
from penstock_engine.sources.selection import WEIGHTS, select
from penstock_engine.sources.storage.partial_file import PartialFile
from penstock_engine.sources.weights_check import MAX_HEADER_BYTES, check_weights

FIRST_SAFETENSORS_BYTES = 64 << 10  # enough for most shards of large models
FIRST_GGUF_BYTES = 256 << 10  # a vocabulary needs some MiB more
GROWTH = 4  # x the bytes of a GGUF file, until its header is complete
MAX_TEXT_BYTES = 256 * MIB  # of a configuration or tokenizer; the largest tokenizers have 40
PARTIAL = ".penstock-partial"  # folder of texts that are being downloaded
OF_A_VOLUME = "lost+found"  # that the root of a new file system has


@dataclass(frozen=True, slots=True)
class SourceHeaders:
    """A source whose headers are in a folder. total_bytes: size of the files that a fetch downloads.

    is_archive: the model is in archives, of which nothing was read; total_bytes is their size.
    """

    resolved_uri: str
    total_bytes: int
    is_archive: bool = False


def fetch_headers(uri: str, folder: Path, limits: FetchLimits) -> SourceHeaders:
    """Fetch the parts that a check reads into an empty folder. Raises FetchError, with a fetch's reasons.

    Files with weights have their true size, and nothing behind their header.
    """
    source = parse_source(uri)
    deadline = Deadline(limits)
    try:
        _check_empty(folder)
        with closing(open_source(source, limits)) as remote:
            listing = deadline.retrying(remote.resolve)
            check_pin(source, listing.resolved)
            resolved_uri = str(listing.resolved)
            if listing.archives:
                num_bytes = sum(archive.size_bytes for archive in listing.archives)
                return SourceHeaders(resolved_uri, num_bytes, is_archive=True)
            files = select(listing.files, limits)
            folder.mkdir(parents=True, exist_ok=True)
            _fetch_texts(remote, [f for f in files if not _is_weights(f)], folder, deadline)
            weights = [file for file in files if _is_weights(file)]
            run_parallel(
                [partial(_write_header, remote, file, folder, deadline) for file in weights],
                deadline,
            )
            check_weights(folder)
    except OSError as error:
        raise write_failed(error) from error
    return SourceHeaders(resolved_uri, sum(file.size_bytes for file in files))


def _check_empty(folder: Path) -> None:
    """Raise FetchError (FolderNotEmpty) for a folder with files, which may be of a real model; OSError."""
    if folder.exists() and any(each.name != OF_A_VOLUME for each in folder.iterdir()):
        raise FetchError(
            "FolderNotEmpty",
            f"{folder} has files: give --headers a folder of its own, as weights without content come there",
        )


def _is_weights(file: SourceFile) -> bool:
    return file.name.endswith(WEIGHTS)


def _fetch_texts(
    remote: Source, files: Sequence[SourceFile], folder: Path, deadline: Deadline
) -> None:
    """Download files whole, and compare their digests. Raises FetchError, OSError."""
    for file in files:
        if file.size_bytes > MAX_TEXT_BYTES:
            raise FetchError(
                "FileTooLarge",
                f"{file.name} has {file.size_bytes >> 20} MiB, more than the {MAX_TEXT_BYTES >> 20} that a "
                "check reads: it is no configuration or tokenizer, so remove it there",
            )
    with ExitStack() as stack:
        downloads = []
        for number, file in enumerate(files):
            path = folder / PARTIAL / str(number)
            unfinished = PartialFile(path, file, deadline.limits.part_bytes)
            stack.callback(unfinished.close)
            downloads.append((file, unfinished, folder / file.name))
        Download(remote, deadline, Progress(lambda _: None)).run(downloads)
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)


def _write_header(remote: Source, file: SourceFile, folder: Path, deadline: Deadline) -> None:
    """Write a sparse file of the true size with the header of a file. Raises FetchError, OSError."""
    write = _write_gguf if file.name.endswith(".gguf") else _write_safetensors
    with (folder / file.name).open("w+b") as sparse:
        write(remote, file, sparse, deadline)
        sparse.truncate(file.size_bytes)


def _write_safetensors(
    remote: Source, file: SourceFile, sparse: BinaryIO, deadline: Deadline
) -> None:
    """Write the header of a safetensors file, with its size before it; the first bytes of any other file.

    It is not held in memory, as headers of several files are read at the same time.
    """
    _copy(remote, file, sparse, 0, FIRST_SAFETENSORS_BYTES, deadline)
    sparse.seek(0)
    header_bytes = int.from_bytes(sparse.read(8), "little")
    end = 8 + header_bytes
    if header_bytes > MAX_HEADER_BYTES or end > file.size_bytes:
        return  # the check of the weights says what is wrong
    _copy(remote, file, sparse, FIRST_SAFETENSORS_BYTES, end, deadline)
    sparse.truncate(end)


def _write_gguf(remote: Source, file: SourceFile, sparse: BinaryIO, deadline: Deadline) -> None:
    """Write the beginning of a GGUF file with its whole header."""
    start, end = 0, FIRST_GGUF_BYTES
    while start < file.size_bytes:
        _copy(remote, file, sparse, start, end, deadline)
        start = end
        sparse.seek(0)
        if has_whole_header(sparse.read()):
            break
        if end >= MAX_HEADER_BYTES:
            raise FetchError(
                "HeaderTooLarge",
                f"{file.name} has more than {MAX_HEADER_BYTES // 10**6} MB of metadata: it is damaged, so "
                "upload it again",
            )
        end = min(end * GROWTH, MAX_HEADER_BYTES)


def _copy(
    remote: Source, file: SourceFile, sparse: BinaryIO, start: int, end: int, deadline: Deadline
) -> None:
    """Copy a range of a file, whose end may be behind it. Raises FetchError, Cancelled, OSError."""
    end = min(end, file.size_bytes)
    if start >= end:
        return

    def attempt() -> None:
        sparse.seek(start)
        with closing(read_range(remote, file, start, end, deadline)) as chunks:
            sparse.writelines(chunks)

    deadline.retrying(attempt)
