"""File locks between Penstock's processes on this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def file_lock(path: Path, say: Callable[[str], None], holder: str) -> Iterator[None]:
    """Hold the lock file at `path`, which another process may hold for minutes.

    say: called before such a wait. holder: what the process that holds the lock does, as in "downloads it".
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"waiting for another Penstock process, which {holder}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
