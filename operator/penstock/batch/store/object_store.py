"""Interface of the batch server's stores: whole objects by key, which are replaced at once or not at all."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class StoreError(Exception):
    """The store cannot be used now: it is full, unreachable, or refuses the credentials."""


class NotStored(StoreError):
    """The store has no object of this key."""


class LeadershipLost(Exception):
    """Another batch server may write to the store."""


class ObjectStore(Protocol):
    """Objects by key, such as tenants/a/files/file-1.json. All methods raise StoreError."""

    def leading(self) -> AbstractAsyncContextManager[None]:
        """Wait until no other process leads, and lead in the block.

        Only the leader writes. Raises LeadershipLost in the block when it ends unexpectedly.
        """
        ...

    async def list_keys(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, in their order. prefix: ends with a slash, or is empty."""
        ...

    async def read(self, key: str, start: int = 0, num_bytes: int | None = None) -> bytes:
        """Return a range of an object, shorter at its end. Raises NotStored."""
        ...

    async def write(self, key: str, data: bytes) -> None:
        """Create or replace an object. It is stored when this returns, and never in part."""
        ...

    async def upload(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """Write an object of many chunks, without holding it in memory. Returns its size in bytes.

        Nothing is stored if the chunks raise an exception, which is raised on.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        ...
