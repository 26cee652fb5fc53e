"""A store in a bucket of S3, or of a store like it."""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

from penstock.batch.store.object_store import LeadershipLost, NotStored, StoreError
from penstock.clients.machine.clock import monotonic

LEASE = "lease.json"
# s: the leader renews its lease this often, and stops when it could not for this long.
RENEW_INTERVAL_S = 5.0
RENEW_DEADLINE_S = 15.0
# s: another process leads when it saw no renewal for this long, by its own clock. The difference to the
# deadline is the time that a last write of the old leader may take.
LEASE_DURATION_S = 30.0
# s: bound on a request to the store, such as the part of an upload.
REQUEST_TIMEOUT_S = 10.0
# Bytes of a part of an upload; S3 allows 10,000 parts, of at least 5 MiB.
PART_BYTES = 8 << 20


class S3Store:
    """Objects below a prefix of a bucket.

    The library reads the usual variables (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY) and workload identities. The bucket needs conditional writes, by which the leader
    renews its lease. Raises StoreError if the settings are wrong.
    """

    def __init__(self, bucket: str, prefix: str = "") -> None:
        from obstore.store import S3Store as Bucket  # takes megabytes

        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        options: Any = {
            "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
            "allow_http": endpoint.startswith("http://"),
        }
        with _store_errors():
            self._store = Bucket(bucket, prefix=prefix or None, client_options=options)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        lease = _Lease(self._store)
        await lease.acquire()
        task = asyncio.current_task()
        assert task is not None
        renewal = asyncio.create_task(lease.renew_until_lost(task))
        try:
            yield
        except asyncio.CancelledError:
            if lease.is_lost:
                task.uncancel()
                raise LeadershipLost("the lease in the bucket was not renewed in time") from None
            raise
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            if not lease.is_lost:
                await lease.release()

    async def list_keys(self, prefix: str) -> list[str]:
        import obstore

        with _store_errors():
            found = await obstore.list(self._store, prefix or None).collect_async()
        return sorted(each["path"] for each in found)

    async def read(self, key: str, start: int = 0, num_bytes: int | None = None) -> bytes:
        import obstore

        with _store_errors():
            options: Any = {}
            if num_bytes is not None:
                size = (await obstore.head_async(self._store, key))["size"]
                end = min(start + num_bytes, size)
                if start >= end:
                    return b""
                options = {"range": (start, end)}
            elif start:
                options = {"range": {"offset": start}}
            result = await obstore.get_async(self._store, key, options=options)
            return bytes(await result.bytes_async())

    async def write(self, key: str, data: bytes) -> None:
        import obstore

        with _store_errors():
            await obstore.put_async(self._store, key, data)

    async def upload(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        import obstore

        num_bytes = 0
        with _store_errors():
            writer = obstore.open_writer_async(self._store, key, buffer_size=PART_BYTES)
        async for chunk in chunks:
            with _store_errors():
                await writer.write(chunk)
            num_bytes += len(chunk)
        # `close` makes an object of the parts. A lifecycle rule of the bucket deletes parts that stay behind.
        with _store_errors():
            await writer.close()
        return num_bytes

    async def delete(self, key: str) -> None:
        import obstore

        with _store_errors():
            await obstore.delete_async(self._store, key)


class _Lease:
    """An object that the leader replaces again and again, each time on condition that nobody else has."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._holder = uuid.uuid4().hex
        self._version: Any = None
        self.is_lost = False

    async def acquire(self) -> None:
        """Wait until the lease is free, released or not renewed, and take it."""
        seen, seen_s = None, monotonic()
        while True:
            with _store_errors():
                current = await self._read()
            if current != seen:
                seen, seen_s = current, monotonic()
            is_free = current is None or not current[1] or monotonic() - seen_s > LEASE_DURATION_S
            if is_free and await self._write(None if current is None else current[0], self._holder):
                return
            await asyncio.sleep(RENEW_INTERVAL_S / 5)

    async def renew_until_lost(self, leader: "asyncio.Task[Any]") -> None:
        """Renew until another process has the lease, or the deadline is over; then cancel the leader."""
        renewed_s = monotonic()
        while not self.is_lost:
            await asyncio.sleep(RENEW_INTERVAL_S)
            started_s = monotonic()
            try:
                async with asyncio.timeout(RENEW_INTERVAL_S):
                    self.is_lost = not await self._write(self._version, self._holder)
                renewed_s = started_s
            except (StoreError, TimeoutError):
                self.is_lost = monotonic() - renewed_s > RENEW_DEADLINE_S - RENEW_INTERVAL_S
        leader.cancel()

    async def release(self) -> None:
        """Let the next process lead at once."""
        try:
            async with asyncio.timeout(RENEW_INTERVAL_S):
                await self._write(self._version, "")
        except (StoreError, TimeoutError):
            pass  # it is not renewed any more

    async def _read(self) -> tuple[Any, str] | None:
        """The version and the holder of the lease; None if there is none."""
        import obstore

        try:
            result = await obstore.get_async(self._store, LEASE)
        except FileNotFoundError:
            return None
        return _version(result.meta), str(json.loads(bytes(await result.bytes_async()))["holder"])

    async def _write(self, version: Any, holder: str) -> bool:
        """Replace this version of the lease. Returns False if there is another one."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        # Each body differs from the one before: an etag may be a digest of it.
        text = json.dumps({"holder": holder, "renewal": uuid.uuid4().hex}).encode()
        mode: Any = "create" if version is None else version
        with _store_errors():
            try:
                written = await obstore.put_async(self._store, LEASE, text, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return False
        self._version = _version(written)
        return True


def _version(stored: Any) -> dict[str, str]:
    """The version of an object, for a condition. Buckets without versions have etags alone."""
    return {name: stored[name] for name in ("e_tag", "version") if stored.get(name) is not None}


@contextmanager
def _store_errors() -> Iterator[None]:
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError

    try:
        yield
    except FileNotFoundError as error:
        raise NotStored("the bucket has no such object") from error
    except (BaseError, UnknownConfigurationKeyError, OSError, ValueError) as error:
        # The library's messages have URLs and answers of the store, which may be long.
        raise StoreError(f"the bucket of batches: {str(error)[:200]}") from error
