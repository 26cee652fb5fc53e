"""The folder store alone has parts of uploads, and a lock that ends with its process."""

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
