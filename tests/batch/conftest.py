"""A batch server on real sockets, with a gateway that answers as a test says."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web
from tests.support.http_server import served

from penstock.batch.server import Ports, running
from penstock.batch.settings import BatchSettings
from penstock.core.batches.shared_token import TENANT_HEADER

TOKEN = "0123456789abcdef0123456789abcdef"
PATH = "/v1/completions"

Behavior = Callable[["Received"], Awaitable[web.Response]]


@dataclass(frozen=True)
class Received:
    """A line that the gateway got. number: how often it got one with this prompt, from 1."""

    tenant: str
    body: Any
    number: int

    @property
    def prompt(self) -> str:
        return str(self.body["prompt"])


async def answer(line: Received) -> web.Response:
    return web.json_response({"echo": line.prompt}, headers={"x-request-id": "req-1"})


@dataclass
class FakeGateway:
    """A gateway that notes lines, and answers by `behavior`."""

    behavior: Behavior = answer
    received: list[Received] = field(default_factory=list)
    num_running: int = 0
    url: str = ""

    async def post(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        body = await request.json()
        number = 1 + sum(each.body == body for each in self.received)
        line = Received(request.headers[TENANT_HEADER], body, number)
        self.received.append(line)
        self.num_running += 1
        try:
            return await self.behavior(line)
        finally:
            self.num_running -= 1

    @property
    def prompts(self) -> list[str]:
        return [each.prompt for each in self.received]


@pytest.fixture
async def fake_gateway() -> AsyncIterator[FakeGateway]:
    gateway = FakeGateway()
    app = web.Application(handler_args={"handler_cancellation": True})
    app.add_routes([web.post(PATH, gateway.post)])
    async with served(app) as address:
        gateway.url = f"http://{address}"
        yield gateway


@dataclass
class Front:
    """A batch server that runs."""

    ports: Ports
    folder: Path
    stack: AsyncExitStack  # of what ends with the test

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports.api}"

    def client(self, tenant: str = "team") -> openai.AsyncOpenAI:
        """OpenAI's client, as the gateway relays its requests for a tenant."""
        client = openai.AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key=TOKEN,
            default_headers={TENANT_HEADER: tenant},
            max_retries=0,
        )
        self.stack.push_async_callback(client.close)
        return client


Start = Callable[..., Awaitable[Front]]


@pytest.fixture
async def start_server(tmp_path: Path, fake_gateway: FakeGateway) -> AsyncIterator[Start]:
    """`await start_server(now=…, setting=…)`; it ends with the test."""
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    async with AsyncExitStack() as stack:

        async def start(
            now: Callable[[], float] = time.time, gateway_url: str = "", **settings: Any
        ) -> Front:
            chosen = BatchSettings(
                gateway_url=gateway_url or fake_gateway.url,
                token_file=token_file,
                store=str(tmp_path / "store"),
                host="127.0.0.1",
                port=0,
                management_port=0,
                **{"drain_timeout_s": 0.2} | settings,
            )
            ports = await stack.enter_async_context(running(chosen, now))
            return Front(ports, tmp_path / "store", stack)

        yield start


def lines(*prompts: str, model: str = "chat") -> bytes:
    """An input file with a line for each prompt, whose name is the prompt too."""
    return b"".join(
        json.dumps(
            {
                "custom_id": prompt,
                "method": "POST",
                "url": PATH,
                "body": {"model": model, "prompt": prompt},
            }
        ).encode()
        + b"\n"
        for prompt in prompts
    )


async def upload(client: openai.AsyncOpenAI, content: bytes, name: str = "in.jsonl") -> str:
    """Upload a file of a batch. Returns its id."""
    return (await client.files.create(file=(name, content), purpose="batch")).id


async def create(client: openai.AsyncOpenAI, content: bytes) -> Any:
    """Upload a file, and create its batch."""
    return await client.batches.create(
        input_file_id=await upload(client, content),
        endpoint=PATH,
        completion_window="24h",
    )


async def until_status(client: openai.AsyncOpenAI, batch_id: str, *statuses: str) -> Any:
    """Wait until a batch has one of these statuses."""

    async def has_status() -> bool:
        return (await client.batches.retrieve(batch_id)).status in statuses

    await until(has_status)
    return await client.batches.retrieve(batch_id)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - a client polls
            await asyncio.sleep(0.01)


async def results(client: openai.AsyncOpenAI, file_id: str | None) -> dict[str, Any]:
    """The lines of a file of results by custom_id, each of which must be there once."""
    if file_id is None:
        return {}
    content = (await client.files.content(file_id)).content
    found = [json.loads(line) for line in content.splitlines()]
    assert len({each["custom_id"] for each in found}) == len(found)
    return {each["custom_id"]: each for each in found}
