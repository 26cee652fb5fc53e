"""A batch server that is killed again and again answers each line once."""

import asyncio
import random
import signal
import sys
from pathlib import Path

import openai
import pytest
from aiohttp import web
from tests.batch.conftest import TOKEN, FakeGateway, Received, create, lines, results, until_status

from penstock.core.batches.shared_token import TENANT_HEADER

pytestmark = pytest.mark.slow

NUM_KILLS, NUM_LINES = 6, 400
SERVER = """
import asyncio, sys
from pathlib import Path
from penstock.batch.server import running
from penstock.batch.settings import BatchSettings
async def main():
    folder, url = Path(sys.argv[1]), sys.argv[2]
    settings = BatchSettings(gateway_url=url, token_file=folder / "token", store=str(folder / "store"),
                             host="127.0.0.1", port=0, management_port=0)
    async with running(settings) as ports:
        print(ports.api, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def started(folder: Path, url: str) -> tuple[asyncio.subprocess.Process, int]:
    """A server process, and its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(folder), url, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


def client_of(port: int) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key=TOKEN,
        default_headers={TENANT_HEADER: "team"},
        max_retries=0,
    )


async def test_kills(tmp_path: Path, fake_gateway: FakeGateway) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)

    async def behave(line: Received) -> web.Response:
        await asyncio.sleep(draw.uniform(0.01, 0.1))
        return web.json_response({}, status=400 if line.prompt.endswith("7") else 200)

    fake_gateway.behavior = behave
    (tmp_path / "token").write_text(TOKEN)
    names = [str(number) for number in range(NUM_LINES)]
    batch_id = ""
    for _ in range(NUM_KILLS):
        process, port = await started(tmp_path, fake_gateway.url)
        if not batch_id:
            async with client_of(port) as client:
                batch_id = (await create(client, lines(*names))).id
        await asyncio.sleep(draw.uniform(0.0, 2.0))
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process, port = await started(tmp_path, fake_gateway.url)
    async with client_of(port) as client:
        batch = await until_status(client, batch_id, "completed")
        done = await results(client, batch.output_file_id)
        failed = await results(client, batch.error_file_id)
    process.kill()
    await process.wait()
    assert sorted([*done, *failed]) == sorted(names)
    assert {*failed} == {name for name in names if name.endswith("7")}
    assert batch.request_counts.model_dump() == {
        "total": NUM_LINES,
        "completed": len(done),
        "failed": len(failed),
    }
