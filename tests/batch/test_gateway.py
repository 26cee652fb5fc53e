"""Files and batches at a real gateway: clients, the batch server, and lines back to an engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tests.batch.conftest import (
    PATH,
    TOKEN,
    FakeGateway,
    Start,
    create,
    lines,
    results,
    until,
    until_status,
    upload,
)
from tests.gateway.support.engine_stub import Engine, Request
from tests.gateway.support.fixtures import quick_servers, start_engine, start_gateway  # noqa: F401
from tests.gateway.support.services import service

from penstock.clients.machine.token_file import follow_token, read_token
from penstock.core.batches.shared_token import TENANT_HEADER, SharedToken
from penstock.core.tenants.tenant import Access, Tenant
from penstock.errors import TokenFileError

TEAM = Tenant("team", 1, access=(Access("default"),))


async def behave(request: Request) -> None:
    body = json.dumps({"echo": json.loads(request.body)["prompt"]}).encode()
    await request.whole(body)


class Stand:
    """A gateway, a batch server and an engine."""

    def __init__(self, front: Any, engine: Engine, stack: AsyncExitStack) -> None:
        self.front, self.engine, self._stack = front, engine, stack

    def client(self, key: str = "none") -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=f"{self.front.url}/v1", api_key=key, max_retries=0)
        self._stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def stand(
    start_gateway: Any,  # noqa: F811
    start_engine: Any,  # noqa: F811
    start_server: Start,
) -> AsyncIterator[Stand]:
    engine = await start_engine(behave)
    front = await start_gateway()
    front.publish(service(engine))
    batch = await start_server(gateway_url=front.url)
    object.__setattr__(front.gateway.state.settings, "batch_url", batch.url)
    front.gateway.serve_batches(SharedToken(TOKEN.encode()))
    async with AsyncExitStack() as stack:
        yield Stand(front, engine, stack)


async def test_a_batch_runs_through_an_open_gateway(stand: Stand) -> None:
    client = stand.client()
    content = lines(*(f"line {number}" for number in range(50)))
    file_id = await upload(client, content)
    assert (await client.files.content(file_id)).content == content
    batch = await client.batches.create(
        input_file_id=file_id, endpoint=PATH, completion_window="24h"
    )
    batch = await until_status(client, batch.id, "completed", "failed")
    found = await results(client, batch.output_file_id)
    assert {name: each["response"]["body"]["echo"] for name, each in found.items()} == {
        f"line {number}": f"line {number}" for number in range(50)
    }
    got = stand.engine.requests[0].headers
    assert TENANT_HEADER not in got
    assert "authorization" not in got
    assert (await client.files.delete(file_id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file_id)


async def test_lines_are_of_the_tenant_of_the_batch(stand: Stand) -> None:
    state = stand.front.gateway.state
    state.authenticator.tenants.publish((TEAM,))
    headers = {"Authorization": f"Bearer {TOKEN}", TENANT_HEADER: "team"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def status(**changed: str) -> int:
            async with session.post(
                stand.front.url + PATH,
                json={"model": "chat", "prompt": "x"},
                headers=changed,
            ) as got:
                return got.status

        assert await status() == 200
        assert await status(**{TENANT_HEADER: "other"}) == 401
        assert await status(**{TENANT_HEADER: ""}) == 401
        assert await status(Authorization="Bearer wrong") == 401
        assert await status(Authorization=f"Bearer {TOKEN[:-1]}") == 401
        state.authenticator.tenants.publish((Tenant("team", 1, access=(Access("elsewhere"),)),))
        assert await status() == 404
        state.authenticator.tenants.publish((Tenant("team", 1, is_suspended=True),))
        assert await status() == 403


async def test_strangers_store_nothing(stand: Stand) -> None:
    stand.front.gateway.state.authenticator.tenants.publish((TEAM,))
    with pytest.raises(openai.AuthenticationError):
        await stand.client().files.list()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{stand.front.url}/v1/files", headers={TENANT_HEADER: "team"}) as got,
    ):
        assert got.status == 401


PATHS = [
    "/v1/files/..%2f..%2fhealthz", "/v1/files/%2e%2e", "/v1/files/a%00b", "/v1/files/a%0a",
    "/v1/files/" + "x" * 65, "/v1/batches/a%3fb", "/v1/batches/a/cancel/", "/v1/files/a/content%0a",
    "/v1/batches/%c3%a9", "/v1//files",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_no_other_text_reaches_the_batch_server(stand: Stand, path: str) -> None:
    from yarl import URL

    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(stand.front.url + path, encoded=True)) as got,
    ):
        assert got.status in (404, 405)
        assert "error" in await got.json()


async def test_web_pages_upload_only_from_allowed_origins(stand: Stand) -> None:
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", b"x", filename="in.jsonl")
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{stand.front.url}/v1/files", data=form, headers={"Origin": "https://evil.example"}
        ) as refused,
        session.get(
            f"{stand.front.url}/v1/files", headers={"Origin": "https://evil.example"}
        ) as listed,
    ):
        assert (refused.status, listed.status) == (403, 200)
        assert (await listed.json())["data"] == []


async def test_a_batch_server_that_is_gone_is_a_503(stand: Stand) -> None:
    object.__setattr__(stand.front.gateway.state.settings, "batch_url", "http://127.0.0.1:9")
    await stand.front.gateway.state.batch_server.close()
    stand.front.gateway.serve_batches(SharedToken(TOKEN.encode()))
    with pytest.raises(openai.APIStatusError) as failed:
        await stand.client().files.list()
    assert failed.value.status_code == 503
    assert failed.value.response.headers["retry-after"]
    with pytest.raises(openai.APIStatusError) as failed:
        await upload(stand.client(), b"x" * 100_000)
    assert failed.value.status_code == 503


async def test_without_a_batch_server_files_are_not_found(
    start_gateway: Any,  # noqa: F811
) -> None:
    front = await start_gateway()
    async with front.client.get(f"{front.url}/v1/files") as got:
        assert got.status == 404
        assert "no batch server" in (await got.json())["error"]["message"]


async def test_an_upload_that_stands_still_ends(stand: Stand) -> None:
    object.__setattr__(stand.front.gateway.state.settings, "request_timeout_s", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.front.port)
    writer.write(
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        b"Content-Length: 100000\r\n\r\n--b\r\n"
    )
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()


async def test_tenants_are_apart_at_the_gateway(stand: Stand, fake_gateway: FakeGateway) -> None:
    client = stand.client()
    batch = await create(client, lines("one"))
    await until_status(client, batch.id, "completed")
    headers = {"Authorization": f"Bearer {TOKEN}", TENANT_HEADER: "team"}
    stand.front.gateway.state.authenticator.tenants.publish((TEAM,))
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{stand.front.url}/v1/batches/{batch.id}") as got,
    ):
        assert got.status == 404
    assert not fake_gateway.received


def test_a_token_is_long_enough(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content in (b"", b"short", b"a" * 31, b"a" * 16 + b" " + b"b" * 16, b"\xff" * 40):
        file.write_bytes(content)
        with pytest.raises(TokenFileError, match="must have a token"):
            read_token(file)
    file.write_bytes(b"a" * 32 + b"\n")
    assert read_token(file).value == b"a" * 32
    with pytest.raises(TokenFileError, match="No such file"):
        read_token(tmp_path / "absent")


async def test_a_new_token_is_taken_on_both_sides(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch server follows its file; the gateway of this test has a file of its own."""
    new, file = "n" * 40, tmp_path / "gateway-token"
    file.write_text(TOKEN)
    token = read_token(file)
    await stand.front.gateway.state.batch_server.close()
    stand.front.gateway.serve_batches(token)
    monkeypatch.setattr("penstock.clients.machine.token_file.CHECK_INTERVAL_S", 0.01)
    following = asyncio.create_task(follow_token(token, file))
    (tmp_path / "token").write_text(new)
    file.write_text("short")  # it changes nothing

    async def is_refused() -> bool:
        try:
            await stand.client().files.list()
        except openai.APIStatusError:
            return True
        return False

    await until(is_refused)
    assert token.value == TOKEN.encode()
    file.write_text(new)

    async def is_known() -> bool:
        return not await is_refused()

    await until(is_known)
    batch = await create(stand.client(), lines("a", "b"))
    batch = await until_status(stand.client(), batch.id, "completed")
    assert {*await results(stand.client(), batch.output_file_id)} == {"a", "b"}
    following.cancel()
