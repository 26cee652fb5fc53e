"""Shares of the gateway's limits: what one owner, or slow clients, leave to all others."""

import asyncio
import contextlib
import json

import pytest

from penstock.core.routing.apis import COMPLETIONS
from penstock.core.routing.forwarded_client import parse_trusted_proxy
from penstock.gateway.app import EngineRoute
from penstock.gateway.proxy.authentication import CALLER
from penstock.gateway.tenants.caller import ANYONE

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture
async def begin_upload():
    """`await begin_upload(front, sent, of)`: sends so many bytes of a body, and returns the reader.

    client: the address to send from. headers: further lines.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def begin(front, sent_bytes, of_bytes, client="127.0.0.1", headers=b""):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", front.port, local_addr=(client, 0)
            )
            stack.callback(writer.close)
            length = b"content-length: %d\r\n\r\n" % of_bytes
            writer.write(HEAD + headers + length + b" " * sent_bytes)
            await writer.drain()
            return reader

        yield begin


async def error(reader) -> tuple[int, str]:
    """The status and the message of an error response."""
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.read()
    return int(head.split()[1]), json.loads(body)["error"]["message"]


TOO_SLOW = "the request was too slow to arrive while others needed its room: send it again"


async def test_slow_uploads_leave_memory_to_others(
    start_engine, start_gateway, begin_upload, until
):
    front = await start_gateway(await start_engine(), max_held_body_bytes=4_000_000)
    memory = front.gateway.state.limits.body_bytes
    slow = []
    for number in range(1, 8):
        slow.append(await begin_upload(front, 300_000, 1_000_000))
        held_bytes = min(number, 6) * 300_000  # more would be over a half
        await until(lambda held_bytes=held_bytes: memory.held == held_bytes)
    assert await error(slow[0]) == (408, TOO_SLOW)
    assert (await front.ask(stream=False, padding="x" * 500_000))[0] == 200
    assert await error(slow[1]) == (408, TOO_SLOW)


async def test_slow_uploads_leave_connections_to_others(
    start_engine, start_gateway, begin_upload, until
):
    front = await start_gateway(await start_engine(), max_connections=6)
    slow = []
    for number in range(1, 5):
        slow.append(await begin_upload(front, 1, 1000))
        await until(lambda number=number: front.num_connections >= number)
    assert await error(slow[0]) == (408, TOO_SLOW)
    assert (await front.ask(stream=False))[0] == 200


@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2"])
async def test_slow_uploads_of_one_client_are_given_up_before_those_of_another(
    start_engine, start_gateway, begin_upload, until, client
):
    """One client address may be that of a proxy for all: then the oldest is given up."""
    front = await start_gateway(await start_engine(), max_connections=6)
    connections = front.gateway.state.limits.connections
    slow = [await begin_upload(front, 1, 1000, client)]
    for number in (1, 2):
        await until(lambda number=number: connections.held == number)
        slow.append(await begin_upload(front, 1, 1000))
    await until(lambda: connections.held == 3)
    await begin_upload(front, 1, 1000)
    is_other = client != "127.0.0.1"
    assert await error(slow[is_other]) == (408, TOO_SLOW)
    assert connections.held == 3


@pytest.mark.parametrize("proxies", ["127.0.0.1", "127.0.0.2"])
async def test_clients_behind_a_trusted_proxy_are_told_apart(
    start_engine, start_gateway, begin_upload, until, proxies
):
    """Clients behind a proxy that is not trusted count as one, whatever addresses their headers name."""
    front = await start_gateway(
        await start_engine(), max_connections=6, trusted_proxies=(parse_trusted_proxy(proxies),)
    )
    connections = front.gateway.state.limits.connections
    slow = []
    for number, client in enumerate((b"203.0.113.5", b"203.0.113.9", b"203.0.113.9"), 1):
        line = b"x-forwarded-for: 10.0.0.1, %s\r\n" % client
        slow.append(await begin_upload(front, 1, 1000, headers=line))
        await until(lambda number=number: connections.held == number)
    await begin_upload(front, 1, 1000)
    is_trusted = proxies == "127.0.0.1"
    assert await error(slow[is_trusted]) == (408, TOO_SLOW)
    assert connections.held == 3


@pytest.fixture
async def hung(start_engine, start_gateway, make_service, until):
    """`await hung(models, **settings)` -> a gateway, and the engine of these models, which hangs."""

    async def hang(_):
        await asyncio.Event().wait()

    async def make(*models, **settings):
        slow, quick = await start_engine(hang), await start_engine()
        front = await start_gateway(synced=False, **settings)
        keys = [model.split("/") for model in models]
        services = [make_service(slow, namespace=each[0], name=each[1]) for each in keys]
        front.publish(*services, make_service(quick))
        return front, slow

    return make


@pytest.fixture
async def begin_asking():
    """`await begin_asking(front, engine, model, number)`: sends requests that the engine gets."""
    tasks = []

    async def begin(front, engine, model, number, **fields):
        for _ in range(number):
            engine.arrived.clear()
            tasks.append(asyncio.create_task(front.ask(model=model, **fields)))
            await asyncio.wait_for(engine.arrived.wait(), 10)

    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


TOO_MANY = "too many requests for this model or its namespace are open: try again later"


async def refusal(front, **fields) -> tuple[int, str]:
    """The status and the message of the error that answers a request."""
    status, body = await asyncio.wait_for(front.ask(**fields), 10)
    return status, json.loads(body)["error"]["message"]


async def test_one_service_leaves_connections_to_others(hung, begin_asking):
    """Seven eighths of its namespace's half are for one service."""
    front, slow = await hung("default/slow", max_connections=8)
    await begin_asking(front, slow, "slow", 3)
    assert await refusal(front, model="slow") == (503, TOO_MANY)
    assert (await front.ask())[0] == 200
    labels = {"service": "default/slow", "reason": "connections"}
    assert await front.metric("penstock_gateway_rejections_total", **labels) == 1


async def test_services_of_one_namespace_leave_connections_to_others(hung, begin_asking):
    front, slow = await hung("party/a", "party/b", "party/c", max_connections=8)
    await begin_asking(front, slow, "a", 3)
    await begin_asking(front, slow, "b", 1)
    for model in "abc":
        assert await refusal(front, model=model) == (503, TOO_MANY)
    assert (await front.ask())[0] == 200


async def test_service_and_its_slow_uploads_leave_connections_to_others(
    hung, begin_asking, begin_upload, until
):
    front, slow = await hung("party/a", max_connections=8)
    connections = front.gateway.state.limits.connections
    await begin_asking(front, slow, "a", 3)
    uploads = []
    for number in range(4):
        uploads.append(await begin_upload(front, 1, 1000))
        await until(lambda number=number: connections.held == min(3 + number + 1, 5))
    for upload in uploads[:2]:
        assert await error(upload) == (408, TOO_SLOW)
    assert (await front.ask())[0] == 200


async def test_services_of_one_namespace_leave_memory_to_others(hung, begin_asking):
    front, slow = await hung("party/a", "party/b", max_held_body_bytes=1_600_000)
    await begin_asking(front, slow, "a", 1, padding="x" * 690_000)
    await begin_asking(front, slow, "b", 1, padding="x" * 80_000)
    too_much = (
        "the waiting requests for this model or its namespace hold too much memory: try again later"
    )
    for model in "ab":
        assert await refusal(front, model=model, padding="x" * 20_000) == (503, too_much)
    assert (await front.ask(padding="x" * 300_000))[0] == 200


async def test_service_and_its_slow_uploads_leave_memory_to_others(
    hung, begin_asking, begin_upload, until
):
    front, slow = await hung("party/a", max_held_body_bytes=1_600_000)
    memory = front.gateway.state.limits.body_bytes
    await begin_asking(front, slow, "a", 1, padding="x" * 690_000)
    of_service = memory.held
    uploads = []
    for number in range(1, 5):
        uploads.append(await begin_upload(front, 150_000, 500_000))
        held_bytes = min(number, 3) * 150_000
        await until(lambda held_bytes=held_bytes: memory.held == of_service + held_bytes)
    assert await error(uploads[0]) == (408, TOO_SLOW)
    assert (await front.ask(padding="x" * 150_000))[0] == 200


async def test_connections_that_end_do_not_count(
    start_engine, start_gateway, make_service, begin_upload
):
    """After an early response the gateway reads on for two seconds, so that the client gets it."""
    front = await start_gateway(await start_engine(), max_connections=4, max_body_bytes=100)
    for _ in range(20):
        reader = await begin_upload(front, 1, 1000)
        status, _ = await error(reader)
        assert status == 413
    assert (await front.ask(stream=False))[0] == 200
    assert front.num_connections <= 5


async def test_request_holds_nothing_while_an_error_of_the_gateway_is_sent(start_gateway, until):
    """Its connection may be replaced, so clients that do not read errors take nothing from others."""
    state = (await start_gateway()).gateway.state
    body = b'{"model": "unknown"}'
    parts = [{"type": "http.request", "body": body}]
    read = asyncio.Event()
    sent = []

    async def receive():
        return parts.pop()

    async def send(message):
        sent.append(message)
        await read.wait()

    scope = {
        "type": "http", "method": "POST", "path": COMPLETIONS.path, "query_string": b"", "headers": [],
        "client": ("10.0.0.1", 9), CALLER: ANYONE,
    }  # fmt: skip
    answering = asyncio.create_task(EngineRoute(state, COMPLETIONS)(scope, receive, send))
    await until(lambda: sent)
    assert (state.limits.connections.held, state.limits.body_bytes.held) == (0, 0)
    read.set()
    await answering
    assert sent[0]["status"] == 404
