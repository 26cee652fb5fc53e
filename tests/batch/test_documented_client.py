"""The client of docs/concepts/batches.md, run with an address and a key in its environment."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from tests.batch.conftest import TOKEN, Start
from tests.gateway.support.engine_stub import Request
from tests.gateway.support.fixtures import quick_servers, start_engine, start_gateway  # noqa: F401
from tests.gateway.support.services import service
from tests.support.gateway_callers import api_key, let_in, tenant

from penstock.core.batches.shared_token import SharedToken
from penstock.core.tenants.tenant import Access

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "batches.md"
PAUSE, SHORT_PAUSE = "time.sleep(10)", "time.sleep(0.1)"
TIMEOUT_S = 60.0


def documented_client() -> str:
    """The Python code of the page, with a shorter pause."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert PAUSE in code
    return str(code).replace(PAUSE, SHORT_PAUSE)


async def echo(request: Request) -> None:
    """Answer with the question."""
    (message,) = json.loads(request.body)["messages"]
    await request.whole(json.dumps({"choices": [{"message": message}]}).encode())


async def test_the_documented_client_gets_its_answers(
    start_gateway: Any,  # noqa: F811
    start_engine: Any,  # noqa: F811
    start_server: Start,
    tmp_path: Path,
) -> None:
    front = await start_gateway()
    front.publish(service(await start_engine(echo)))
    batch = await start_server(gateway_url=front.url)
    object.__setattr__(front.gateway.state.settings, "batch_url", batch.url)
    front.gateway.serve_batches(SharedToken(TOKEN.encode()))
    let_in(front.gateway, tenant("team", Access("default")), keys={"team": api_key(1)})
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", documented_client(), cwd=tmp_path, stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"OPENAI_BASE_URL": f"{front.url}/v1", "OPENAI_API_KEY": api_key(1).text},
    )  # fmt: skip
    async with asyncio.timeout(TIMEOUT_S):
        printed, _ = await running.communicate()
    assert running.returncode == 0
    told = sorted(printed.decode().splitlines())
    assert [line.partition(" ")[0] for line in told] == ["sea", "sky"]
    assert "Why is the sea salty?" in told[0]
    assert "Why is the sky blue?" in told[1]
