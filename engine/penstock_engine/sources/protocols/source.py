"""Interface of the kinds of sources: listing files at one revision, and reading parts of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from penstock_engine.sources.listing import Listing, SourceFile


class Source(Protocol):
    """A place that models are fetched from. Its methods may be called by several threads."""

    def resolve(self) -> Listing:
        """List the files, and name the revision that has them. Raises FetchError."""

    def read(
        self, file: SourceFile, start: int, end: int
    ) -> AbstractContextManager[Iterator[bytes | memoryview]]:
        """Open a range of a file, whose chunks may be read once. end: excluded. Raises FetchError.

        Chunks may end early, or be more than was requested: the reader checks it.
        """

    def close(self) -> None:
        """Close its connections."""
