"""Repositories of the hub mirror: folders of models on this machine, with the digests of their files."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Owner and name of a repository, as the hub allows them.
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file of a repository."""

    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A model at its one commit. files: by their names in the repository."""

    commit: str
    files: Mapping[str, RepositoryFile]


class Repositories:
    """Repositories below a folder: ORG/NAME is the folder of that path.

    folders: of repositories with another path, by their names. Files and folders whose names begin with a dot
    are left out, and so are links that lead out of the repository's folder.
    """

    def __init__(self, root: Path, folders: Mapping[str, str]) -> None:
        self.root = root
        self._folders = folders
        self._digests: dict[tuple[Path, int, int], str] = {}

    def read(self, name: str) -> Repository | None:
        """Read a repository; None if it does not exist. Only files that are new or changed are hashed."""
        folder = self._folder(name)
        if folder is None:
            return None
        files = {str(path.relative_to(folder)): self._file(path) for path in _files(folder)}
        if not files:
            return None
        content = json.dumps({name: file.sha256 for name, file in sorted(files.items())})
        commit = hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest()
        return Repository(commit, files)

    def _folder(self, name: str) -> Path | None:
        if not NAME.fullmatch(name):
            return None
        root = self.root.resolve()
        folder = (root / self._folders.get(name, name)).resolve()
        return folder if folder.is_dir() and folder.is_relative_to(root) else None

    def _file(self, path: Path) -> RepositoryFile:
        stat = path.stat()
        key = (path, stat.st_size, stat.st_mtime_ns)
        if key not in self._digests:
            with path.open("rb") as file:
                self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return RepositoryFile(path, stat.st_size, self._digests[key])


def _files(folder: Path) -> Iterator[Path]:
    """The regular files of a folder."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for name in names:
            path = Path(parent, name)
            is_inside = path.resolve().is_relative_to(folder)
            if is_inside and path.is_file() and not name.startswith("."):
                yield path
