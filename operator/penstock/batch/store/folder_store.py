"""A store in a folder, such as a volume of a claim."""

import asyncio
import errno
import fcntl
import os
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
    support for flock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = folder / PARTS

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        with _store_errors():
            self._parts.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not await asyncio.to_thread(_lock, descriptor):  # noqa: ASYNC110 - flock has no events
                await asyncio.sleep(LOCK_INTERVAL_S)
            await self._run(self._remove_parts)
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
        if not target.parent.is_dir():
            self._make_folder(target.parent)
        part.replace(target)
        _sync_folder(target.parent)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder that survives a crash: its name is an entry of the one above."""
        if folder.parent != self._folder and not folder.parent.is_dir():
            self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)

    def _delete(self, key: str) -> None:
        (self._folder / key).unlink(missing_ok=True)

    def _remove_parts(self) -> None:
        for each in self._parts.iterdir():
            each.unlink()


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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
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
