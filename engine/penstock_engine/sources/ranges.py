"""Reads a range of a source's file, from servers that may send too much, too little, or too slowly."""

import time
from collections.abc import Generator

from penstock_engine.sources.deadline import Deadline
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.listing import SourceFile
from penstock_engine.sources.protocols.source import Source
from penstock_engine.sources.transfer_rate import TransferRate


def read_range(
    source: Source, file: SourceFile, start: int, end: int, deadline: Deadline
) -> Generator[bytes | memoryview]:
    """The chunks of a range. end: excluded. Raises FetchError, Cancelled.

    Reasons of its own are WrongSize, Truncated and TooSlow. A server without ranges sends the file to its
    end: bytes after the range are not read.
    """
    position = start
    is_exact = file.has_ranges or end == file.size_bytes
    rate = TransferRate(deadline.limits, time.monotonic())
    with source.read(file, start, end) as chunks:
        for chunk in chunks:
            if position + len(chunk) > end and is_exact:
                raise FetchError(
                    "WrongSize",
                    f"the server sent more of {file.name} than was requested: it ignores "
                    "ranges, or the file has changed",
                )
            wanted = chunk[: end - position]
            position += len(wanted)
            yield wanted
            if position == end and not is_exact:
                return
            deadline.check()
            rate.add(len(wanted), time.monotonic())
    if position < end:
        raise FetchError(
            "Truncated",
            f"the server ended {file.name} after {position} of {file.size_bytes} bytes: "
            "the file is shorter than the source lists, or a proxy cuts it",
            is_retryable=True,
        )
