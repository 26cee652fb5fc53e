"""Shares of the gateway's limits: what one service, or slow clients, leave to all others."""

import asyncio
import contextlib
import json

import pytest

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture
async def begin_upload():
    """`await begin_upload(front, sent, of)`: sends so many bytes of a body, and returns the reader."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(front, sent_bytes, of_bytes):
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            stack.callback(writer.close)
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % of_bytes + b" " * sent_bytes)
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
    bodies = front.gateway.state.bodies
    slow = []
    for number in range(1, 8):
        slow.append(await begin_upload(front, 300_000, 1_000_000))
        held_bytes = min(number, 6) * 300_000  # more would be over a half
        await until(lambda held_bytes=held_bytes: bodies.arriving.num_bytes == held_bytes)
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


async def test_one_service_leaves_connections_to_others(
    start_engine, start_gateway, make_service, until
):
    async def hang(_):
        await asyncio.Event().wait()

    slow, quick = await start_engine(hang), await start_engine()
    front = await start_gateway(synced=False, max_connections=4)
    front.publish(make_service(slow, name="slow"), make_service(quick))
    waiting = [asyncio.create_task(front.ask(model="slow")) for _ in range(2)]
    await until(lambda: slow.active == 2)
    status, body = await front.ask(model="slow")
    assert status == 503
    message = "too many requests for this model are open: try again later"
    assert json.loads(body)["error"]["message"] == message
    assert (await front.ask())[0] == 200
    labels = {"service": "default/slow", "reason": "connections"}
    assert await front.metric("penstock_gateway_rejections_total", **labels) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await front.idle()


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
