"""Records of files and batches outlive the process; what has none is removed."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.batch.store import keys
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.folder_store import FolderStore
from penstock.batch.store.journal import Journal, JournalEntry
from penstock.core.batches.records import Batch, StoredFile

FILE = StoredFile(keys.new_file_id(), "team", "in.jsonl", "batch", 10, 100, 200)
BATCH = Batch(
    id=keys.new_batch_id(), tenant="team", endpoint="/v1/completions", input_file=FILE.id,
    output_file=keys.new_file_id(), error_file=keys.new_file_id(), created_s=101, expires_s=300,
    results_retention_s=3600, num_lines=4,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    (tmp_path / ".parts").mkdir()
    return FolderStore(tmp_path)


async def test_the_next_process_knows_files_and_batches(store: FolderStore) -> None:
    catalog = Catalog(store)
    newer = replace(FILE, id=keys.new_file_id(), created_s=102)
    for each in (newer, FILE):
        await store.write(keys.file_content("team", each.id), b"content")
        await catalog.add_file(each)
    await catalog.save_batch(BATCH)
    after = Catalog(store)
    await after.load()
    assert after.files("team") == [FILE, newer]
    assert after.batches("team") == [BATCH]
    assert after.stored_bytes("team") == 20
    assert after.file("other", FILE.id) is None
    assert after.batch("other", BATCH.id) is None


async def test_a_deleted_file_is_gone(store: FolderStore) -> None:
    catalog = Catalog(store)
    await catalog.add_file(FILE)
    await store.write(keys.file_content("team", FILE.id), b"content")
    await catalog.delete_file(FILE)
    assert catalog.files("team") == []
    assert await store.list_keys("") == []


async def test_what_a_crash_left_is_removed(store: FolderStore) -> None:
    catalog = Catalog(store)
    ended, unknown = replace(BATCH, id=keys.new_batch_id(), status="completed"), keys.new_batch_id()
    for each in (BATCH, ended):
        await catalog.save_batch(each)
    kept = keys.segment("team", BATCH.id, 0)
    for key in (
        kept,
        keys.segment("team", ended.id, 0),
        keys.segment("team", unknown, 3),
        keys.file_content("team", keys.new_file_id()),
    ):
        await store.write(key, b"")
    await Catalog(store).load()
    assert await store.list_keys("") == sorted(
        [kept, keys.batch_record("team", BATCH.id), keys.batch_record("team", ended.id)]
    )


async def test_a_record_of_another_version_is_left_alone(
    store: FolderStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.write(keys.file_record("team", FILE.id), b'{"id": 7}')
    await store.write(keys.file_content("team", FILE.id), b"content")
    catalog = Catalog(store)
    await catalog.load()
    assert catalog.files("team") == []
    assert len(await store.list_keys("")) == 2
    assert "cannot be read" in caplog.text


async def test_results_are_in_the_journal_when_they_are_flushed(store: FolderStore) -> None:
    journal = Journal(store, BATCH)
    journal.add(JournalEntry(2, True, b'{"a": 1}\n'))
    await journal.flush()
    journal.add(JournalEntry(0, False, b'{"b": " "}\n'))
    await journal.flush()
    journal.add(JournalEntry(1, True, b"lost\n"))
    after = Journal(store, BATCH)
    await after.load()
    assert [after.has_result(index) for index in range(4)] == [True, False, True, False]
    assert (after.num_completed, after.num_failed) == (1, 1)
    after.add(JournalEntry(2, False, b"too late\n"))
    after.add(JournalEntry(3, True, b'{"c": 1}\n'))
    await after.flush()
    assert [each.text async for each in after.entries(completed=True)] == [
        b'{"a": 1}\n',
        b'{"c": 1}\n',
    ]
    assert [each.index async for each in after.entries(completed=False)] == [0]
    await after.delete()
    assert await store.list_keys("") == []


async def test_of_two_results_of_a_line_the_first_one_counts(store: FolderStore) -> None:
    first, second = Journal(store, BATCH), Journal(store, BATCH)
    first.add(JournalEntry(1, True, b"first\n"))
    await first.flush()
    await second.load()
    other = Journal(store, BATCH)  # a process that no longer leads
    other.add(JournalEntry(1, False, b"second\n"))
    other.add(JournalEntry(1, False, b"third\n"))
    other._num_segments = 1
    await other.flush()
    assert [each.text async for each in second.entries(completed=True)] == [b"first\n"]
    assert [each.text async for each in second.entries(completed=False)] == []


async def test_segments_become_rarer(store: FolderStore) -> None:
    journal = Journal(store, BATCH)
    assert journal.interval_s == 1.0
    journal._num_segments = 1000
    assert journal.interval_s == 11.0
