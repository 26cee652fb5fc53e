"""Refuses models with files that cannot be read."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_engine.core.errors import ModelError


def check_searchable(folder: Path) -> None:
    """Raise PermissionError if this process has no right to search a folder.

    Functions such as `is_file` say that its files do not exist then.
    """
    if folder.is_dir() and not os.access(folder, os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@contextmanager
def refusing_unreadable_files() -> Iterator[None]:
    """Raise ModelError (ReadFailed) in place of an OSError that names a file."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno is None:
            raise
        message = f"{error.filename} cannot be read: {os.strerror(error.errno)}"
        if error.errno in (errno.EACCES, errno.EPERM):
            message += f" for user {os.geteuid()} of group {os.getegid()}"
        raise ModelError("ReadFailed", message) from error
