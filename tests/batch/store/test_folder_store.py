"""The folder store alone has parts of uploads, and a lock that ends with its process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.batch.store.folder_store import PARTS, FolderStore
from penstock.batch.store.object_store import StoreError

LEAD = """
import asyncio, sys
from pathlib import Path
from penstock.batch.store.folder_store import FolderStore
async def main():
    async with FolderStore(Path(sys.argv[1])).leading():
        print("leads", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_parts_of_a_process_that_was_killed_are_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        assert process.stdout.readline() == b"leads\n"
        (tmp_path / PARTS / "begun").write_bytes(b"part")
        process.kill()
    async with FolderStore(tmp_path).leading():
        assert not list((tmp_path / PARTS).iterdir())


async def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        async with FolderStore(tmp_path / "file" / "below").leading():
            pass


async def test_folders_without_objects_are_removed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    async with store.leading():
        for key in ("tenants/a/batches/batch_1/0", "tenants/a/batches/batch_1/1", "tenants/a/file"):
            await store.write(key, b"")
        await store.delete("tenants/a/batches/batch_1/0")
        assert (tmp_path / "tenants/a/batches/batch_1").is_dir()
        await store.delete("tenants/a/batches/batch_1/1")
        assert not (tmp_path / "tenants/a/batches").exists()
        assert await store.list_keys("tenants/") == ["tenants/a/file"]
        await store.delete("tenants/a/file")
        await store.delete("tenants/a/file")
        assert not (tmp_path / "tenants").exists()
        (tmp_path / "tenants/b/left").mkdir(parents=True)  # as by a crash
        await store.write("tenants/c", b"")
    async with store.leading():
        assert [each.name for each in (tmp_path / "tenants").iterdir()] == ["c"]


async def test_a_folder_that_is_removed_loses_no_object_of_another_thread(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    async def replace_often(name: str) -> None:
        for _ in range(150):
            await store.write(f"tenants/a/{name}", b"whole")
            assert await store.read(f"tenants/a/{name}") == b"whole"
            await store.delete(f"tenants/a/{name}")

    async with store.leading():
        await asyncio.gather(*(replace_often(name) for name in "abcd"))
    assert not (tmp_path / "tenants").exists()
