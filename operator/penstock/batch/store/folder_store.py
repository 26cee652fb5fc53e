"""A store in a folder, such as a volume of a claim."""

import asyncio
import errno
import fcntl
import os
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from penstock.batch.store.object_store import NotStored, StoreError

T = TypeVar("T")

# Files that are not complete, and the one that the leader has locked.
PARTS, LOCK = ".parts", ".lock"
# s: interval at which a process that waits tries to lock the folder.
LOCK_INTERVAL_S = 0.5


class FolderStore:
    """Objects as files of a folder. A new version replaces the old one by a rename, after an fsync of both.

    The leader has a lock on a file of the folder, which ends with its process. Network file systems need
    support for flock. Folders without a file are removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = folder / PARTS
        # Held from the look for an object's folder until the object is in it: no thread removes it then
        self._changing_folders = threading.Lock()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        with _store_errors():
            self._parts.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not await asyncio.to_thread(_lock, descriptor):  # noqa: ASYNC110 - flock has no events
                await asyncio.sleep(LOCK_INTERVAL_S)
            await self._run(self._remove_leftovers)
            yield
        finally:
            os.close(descriptor)

    async def list_keys(self, prefix: str) -> list[str]:
        return await self._run(self._list, prefix)

    async def read(self, key: str, start: int = 0, num_bytes: int | None = None) -> bytes:
        return await self._run(self._read, key, start, num_bytes)

    async def write(self, key: str, data: bytes) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield data

        await self.upload(key, chunks())

    async def upload(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        part, num_bytes = self._parts / uuid.uuid4().hex, 0
        file = await self._run(_create, part)
        try:
            async for chunk in chunks:
                num_bytes += await self._run(file.write, chunk)
            await self._run(self._finish, file, part, key)
        except BaseException:
            with _store_errors():
                file.close()
                part.unlink(missing_ok=True)
            raise
        return num_bytes

    async def delete(self, key: str) -> None:
        await self._run(self._delete, key)

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        """Call a function in a thread. Raises StoreError."""
        with _store_errors():
            return await asyncio.to_thread(call, *arguments)

    def _list(self, prefix: str) -> list[str]:
        found = (self._folder / prefix).rglob("*")
        keys = (each.relative_to(self._folder).as_posix() for each in found if each.is_file())
        return sorted(key for key in keys if not key.startswith("."))

    def _read(self, key: str, start: int, num_bytes: int | None) -> bytes:
        with (self._folder / key).open("rb") as file:
            file.seek(start)
            return file.read(num_bytes)

    def _finish(self, file: BinaryIO, part: Path, key: str) -> None:
        with file:
            file.flush()
            os.fsync(file.fileno())
        target = self._folder / key
        with self._changing_folders:
            if not target.parent.is_dir():
                self._make_folder(target.parent)
            descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                part.replace(target)
            except BaseException:
                os.close(descriptor)
                raise
        _sync(descriptor)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder that survives a crash: its name is an entry of the one above."""
        if folder.parent != self._folder and not folder.parent.is_dir():
            self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY))

    def _delete(self, key: str) -> None:
        path = self._folder / key
        path.unlink(missing_ok=True)
        with self._changing_folders:
            for folder in path.parents:
                if folder == self._folder or not _remove_if_empty(folder):
                    return

    def _remove_leftovers(self) -> None:
        """Remove parts, and folders that a crash has left empty, the innermost ones first."""
        for each in self._parts.iterdir():
            each.unlink()
        for name, _, _ in os.walk(self._folder, topdown=False):
            if Path(name) not in (self._folder, self._parts):
                _remove_if_empty(Path(name))


def _create(path: Path) -> BinaryIO:
    return path.open("xb")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _remove_if_empty(folder: Path) -> bool:
    """Remove a folder without files. Returns whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _sync(descriptor: int) -> None:
    """Write a folder's entries to the disk, and close it."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotStored(str(error)) from error
    except OSError as error:
        raise StoreError(f"the folder of batches: {error.strerror}") from error
