"""Bytes of files, and of results that are in no file yet."""

from pathlib import Path

from penstock.batch.store.catalog import Catalog
from penstock.batch.store.folder_store import FolderStore
from penstock.batch.store.journal import Journal, JournalEntry
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.core.batches.records import Batch, StoredFile

BATCH = Batch(
    id="batch_1", tenant="team", endpoint="/v1/completions", input_file="file-1", output_file="file-2",
    error_file="file-3", created_s=100, expires_s=86500, results_retention_s=3600, num_lines=9,
)  # fmt: skip


def file(name: str, num_bytes: int) -> StoredFile:
    return StoredFile(name, "team", name, "batch", num_bytes, 0, 1000)


async def test_files_and_results_of_a_tenant_count_once(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    async with store.leading():
        catalog = Catalog(store)
        storage = TenantStorage(catalog, 100)
        await catalog.add_file(file("file-1", 60))
        journal = Journal(store, BATCH)
        journal.add(JournalEntry(0, True, b"x" * 29 + b"\n"))
        journal.add(JournalEntry(1, False, b"x" * 7 + b"\n"))
        journal.add(JournalEntry(1, False, b"of a line that has a result\n"))
        storage.add_journal(BATCH, journal)
        assert storage.stored_bytes("team") == 98
        assert storage.has_room("team", 2)
        assert not storage.has_room("team", 3)
        assert storage.has_room("other", 100)
        await journal.flush()
        again = Journal(store, BATCH)
        await again.load()
        storage.add_journal(BATCH, again)
        assert storage.stored_bytes("team") == 98
        await catalog.add_file(file("file-2", 30))
        assert storage.stored_bytes("team") == 98
        await catalog.add_file(file("file-3", 50))  # with lines that were not executed
        assert storage.stored_bytes("team") == 140
        storage.remove_journal(BATCH)
        storage.remove_journal(BATCH)
        assert storage.stored_bytes("team") == 140


async def test_bytes_of_files_follow_what_is_stored(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    async with store.leading():
        catalog = Catalog(store)
        await catalog.add_file(file("file-1", 60))
        await catalog.add_file(file("file-1", 50))  # its record was written again after an error
        await catalog.add_file(file("file-2", 1))
        await catalog.delete_file(file("file-2", 1))
        await catalog.delete_file(file("file-2", 1))
        assert catalog.stored_bytes("team") == 50
        after = Catalog(store)
        for each in (catalog, after):
            await store.write("tenants/team/files/file-1.jsonl", b"")
            await each.load()
            assert each.stored_bytes("team") == 50
