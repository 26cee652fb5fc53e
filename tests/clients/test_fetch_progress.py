"""The operator reads the progress of a fetch from the command that pods run."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port
from tests.support.sources.faults import Fault
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files

from penstock.clients.machine.clock import steady
from penstock.clients.pods.scrape import Scraper


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A hub with a model whose weights come in a few bytes a second."""
    with HubServer() as server:
        server.add("org/model", model_files())
        server.faults.add(Fault("trickle", "signature"))
        yield server


async def test_the_progress_of_a_fetch_that_runs(hub: HubServer, tmp_path: Path) -> None:
    port, program = unused_port(), str(Path(sys.executable).with_name("penstock-engine"))
    command = [
        program, "fetch", "hf://org/model", "--into", str(tmp_path), "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    scraper = Scraper(steady)
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | {"HF_ENDPOINT": hub.url}
    )
    found = None
    try:
        while found is None:
            assert process.returncode is None
            found = await scraper.fetch_progress("ns", "chat-0", f"127.0.0.1:{port}")
            await asyncio.sleep(0.05)
    finally:
        process.kill()
        await process.wait()
    await scraper.close()
    sizes = {name: len(content) for name, content in model_files().items()}
    wanted = sum(sizes[name] for name in ("config.json", "tokenizer.json", "model.safetensors"))
    assert found.total_bytes == wanted
    assert 0 <= found.done_bytes < wanted
