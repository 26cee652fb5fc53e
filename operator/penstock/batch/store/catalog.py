"""Records of all files and batches: in memory, and written to the store before they are in force."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

from penstock.batch.store import keys
from penstock.batch.store.object_store import ObjectStore
from penstock.core.batches.records import Batch, StoredFile
from penstock.core.formats.json_text import parse_json
from penstock.core.formats.serialization import deserialize, serialize

logger = logging.getLogger(__name__)

Record = TypeVar("Record", StoredFile, Batch)

# Records that are read at a time at the start.
MAX_READS = 32


class Catalog:
    """Files and batches by tenant and identifier, from the oldest to the newest."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._files: dict[str, dict[str, StoredFile]] = {}
        self._stored_bytes = Counter[str]()  # by tenant; kept, as each line asks for it
        self._batches: dict[str, dict[str, Batch]] = {}

    async def load(self) -> None:
        """Read all records, and delete what a crash has left without one. Raises StoreError."""
        found = await self.store.list_keys(keys.TENANTS)
        limit = asyncio.Semaphore(MAX_READS)
        files = await self._read_all(StoredFile, found, "/files/", limit)
        batches = await self._read_all(Batch, found, "/batches/", limit)
        self._files, self._batches = _by_tenant(files), _by_tenant(batches)
        self._stored_bytes.clear()
        for file in files:
            self._stored_bytes[file.tenant] += file.num_bytes
        await self._delete_leftovers(found)

    async def _read_all(
        self, kind: type[Record], found: Sequence[str], folder: str, limit: asyncio.Semaphore
    ) -> list[Record]:
        async def read(key: str) -> Record | None:
            async with limit:
                text = await self.store.read(key)
            try:
                return deserialize(kind, parse_json(text))
            except ValueError as error:  # of a version of this program that is not compatible
                logger.error("the record %s cannot be read, and is ignored: %s", key, error)
                return None

        names = [each for each in found if folder in each and each.endswith(".json")]
        records = await asyncio.gather(*(read(name) for name in names))
        return [each for each in records if each is not None]

    async def _delete_leftovers(self, found: Sequence[str]) -> None:
        """Delete what an upload, a deletion or the end of a batch has left that was interrupted.

        These are contents without a record, and results of lines of a batch that does not run.
        """
        records = {each.removesuffix(".json") for each in found if each.endswith(".json")}
        ended = {
            keys.journal(each.tenant, each.id) for each in self.all_batches() if each.is_finished
        }
        for key in found:
            folder = key.rpartition("/")[0]
            is_content = key.endswith(".jsonl") and key.removesuffix(".jsonl") not in records
            is_result = folder.rpartition("/")[2].startswith("batch_") and (
                folder not in records or f"{folder}/" in ended
            )
            if is_content or is_result:
                await self.store.delete(key)

    def files(self, tenant: str) -> list[StoredFile]:
        """A tenant's files, the oldest first."""
        return list(self._files.get(tenant, {}).values())

    def file(self, tenant: str, file_id: str) -> StoredFile | None:
        return self._files.get(tenant, {}).get(file_id)

    def stored_bytes(self, tenant: str) -> int:
        """Size of a tenant's files."""
        return self._stored_bytes[tenant]

    def batches(self, tenant: str) -> list[Batch]:
        """A tenant's batches, the oldest first."""
        return list(self._batches.get(tenant, {}).values())

    def batch(self, tenant: str, batch_id: str) -> Batch | None:
        return self._batches.get(tenant, {}).get(batch_id)

    def all_files(self) -> list[StoredFile]:
        return [each for files in self._files.values() for each in files.values()]

    def all_batches(self) -> list[Batch]:
        return [each for batches in self._batches.values() for each in batches.values()]

    def is_in_use(self, file: StoredFile) -> bool:
        """Whether a batch that has not ended needs a file."""
        batches = self._batches.get(file.tenant, {}).values()
        return any(each.input_file == file.id and not each.is_finished for each in batches)

    async def content(self, file: StoredFile, chunk_bytes: int) -> AsyncGenerator[bytes, None]:
        """Read the content of a file in chunks. Raises StoreError."""
        key = keys.file_content(file.tenant, file.id)
        for start in range(0, file.num_bytes, chunk_bytes):
            yield await self.store.read(key, start, chunk_bytes)

    async def add_file(self, file: StoredFile) -> None:
        """Add a file whose content is stored. Raises StoreError."""
        await self.store.write(keys.file_record(file.tenant, file.id), _text(file))
        self._forget_bytes(file)
        self._files.setdefault(file.tenant, {})[file.id] = file
        self._stored_bytes[file.tenant] += file.num_bytes

    async def delete_file(self, file: StoredFile) -> None:
        """Delete a file: at once for clients, then its content. Raises StoreError."""
        await self.store.delete(keys.file_record(file.tenant, file.id))
        self._forget_bytes(file)
        _remove(self._files, file)
        await self.store.delete(keys.file_content(file.tenant, file.id))

    def _forget_bytes(self, file: StoredFile) -> None:
        """Count the bytes of a file no more, if there is one of its id."""
        old = self.file(file.tenant, file.id)
        if old is not None:
            self._stored_bytes[file.tenant] -= old.num_bytes
            if not self._stored_bytes[file.tenant]:
                del self._stored_bytes[file.tenant]

    async def save_batch(self, batch: Batch) -> None:
        """Add or replace a batch. Raises StoreError."""
        await self.store.write(keys.batch_record(batch.tenant, batch.id), _text(batch))
        self._batches.setdefault(batch.tenant, {})[batch.id] = batch

    async def delete_batch(self, batch: Batch) -> None:
        """Delete what is known of a batch that has ended. Raises StoreError."""
        await self.store.delete(keys.batch_record(batch.tenant, batch.id))
        _remove(self._batches, batch)


def _text(record: StoredFile | Batch) -> bytes:
    return json.dumps(serialize(record)).encode()


def _by_tenant(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    by_tenant: dict[str, dict[str, Record]] = {}
    for each in sorted(records, key=lambda record: (record.created_s, record.id)):
        by_tenant.setdefault(each.tenant, {})[each.id] = each
    return by_tenant


def _remove(by_tenant: dict[str, dict[str, Record]], record: Record) -> None:
    of_tenant = by_tenant.get(record.tenant, {})
    of_tenant.pop(record.id, None)
    if not of_tenant:
        by_tenant.pop(record.tenant, None)
