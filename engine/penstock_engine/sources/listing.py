"""Files that a source has, at one revision."""

from dataclasses import dataclass
from typing import Literal

from penstock_engine.contract.model_source import ModelSource

# git-sha1: of a blob of git, which is the digest of its length and its content.
Algorithm = Literal["sha256", "git-sha1"]


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest of a file's content. hex: in lower case."""

    algorithm: Algorithm
    hex: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source."""

    name: str  # relative to the model's folder, with slashes
    size_bytes: int
    blob: str  # its key in the store: the same for the same content, or for the same version of an object
    digest: Digest | None  # a source without digests has its files compared by size and version
    location: str  # where the source reads it: a URL, or the key of an object
    version: str | None = None  # etag that a read has to match; None: the location is the version
    has_ranges: bool = True  # whether parts of it can be read


@dataclass(frozen=True, slots=True)
class Listing:
    """All files of a source.

    resolved: URI that names these files and no later ones. archives: tar archives with more files; those of
    a later one replace those of an earlier one.
    """

    resolved: ModelSource
    files: tuple[SourceFile, ...]
    archives: tuple[SourceFile, ...] = ()
