"""Tenants that hold the batch server's connections, beside others that need some."""

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.batch.conftest import TOKEN, Start
from tests.gateway.support.fixtures import quick_servers, start_gateway  # noqa: F401
from tests.gateway.support.front import until
from tests.support.gateway_callers import api_key, bearer, let_in, tenant

from penstock.core.batches.shared_token import SharedToken
from penstock.core.tenants.tenant import Access
from penstock.gateway.state.batch_server import MAX_CONNECTIONS

HOLDER, NEIGHBOR = api_key(1), api_key(2)
# s: for an answer to the neighbor, far below the time limits of the requests that hold connections
SOON_S = 10.0
# Connections that one tenant may have of the batch server's.
MOST = MAX_CONNECTIONS // 2


@pytest.fixture
async def front(start_gateway: Any, start_server: Start) -> Any:  # noqa: F811
    front = await start_gateway()
    front.publish()
    batch = await start_server(gateway_url=front.url)
    object.__setattr__(front.gateway.state.settings, "batch_url", batch.url)
    front.gateway.serve_batches(SharedToken(TOKEN.encode()))
    tenants = tenant("holder", Access("default")), tenant("neighbor", Access("default"))
    let_in(front.gateway, *tenants, keys={"holder": HOLDER, "neighbor": NEIGHBOR})
    return front


@asynccontextmanager
async def held(front: Any, count: int, head: str) -> AsyncIterator[None]:
    """Open connections with a request of the holder, which sends no body and reads no answer."""
    opened = [
        await asyncio.open_connection("127.0.0.1", front.port, limit=1024) for _ in range(count)
    ]
    text = f"{head}\r\nHost: a\r\nAuthorization: Bearer {HOLDER.text}\r\n"
    try:
        for _, writer in opened:
            writer.write(text.encode())
            if head.startswith("POST"):
                writer.write(b"Content-Type: application/json\r\nContent-Length: 100\r\n")
            writer.write(b"\r\n")
            await writer.drain()
        await until(lambda: front.gateway.state.limits.connections.held >= MOST)
        yield
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def list_files(front: Any) -> int:
    async with (
        asyncio.timeout(SOON_S),
        front.client.get(f"{front.url}/v1/files", headers=bearer(NEIGHBOR)) as got,
    ):
        return int(got.status)


async def test_requests_that_do_not_arrive_block_no_neighbor(front: Any) -> None:
    async with held(front, MOST + 2, "POST /v1/batches HTTP/1.1"):
        assert await list_files(front) == 200


async def test_files_that_are_not_read_block_no_neighbor(front: Any) -> None:
    form = aiohttp.FormData()
    form.add_field("purpose", "batch")
    form.add_field("file", io.BytesIO(os.urandom(8 << 20)), filename="a.jsonl")
    async with front.client.post(f"{front.url}/v1/files", data=form, headers=bearer(HOLDER)) as got:
        file_id = (await got.json())["id"]
    async with held(front, MOST + 2, f"GET /v1/files/{file_id}/content HTTP/1.1"):
        assert await list_files(front) == 200
