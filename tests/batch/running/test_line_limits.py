"""Lines at the gateway, and their memory, of which no tenant can take all."""

import asyncio

from aiohttp import web
from tests.batch.conftest import FakeGateway, Received, Start, create, lines, until, until_status

from penstock.batch.running.line_memory import LineMemory, memory_limit


async def test_lines_that_hang_stop_no_other_tenant(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    async def behave(line: Received) -> web.Response:
        if line.tenant == "hanging":
            await asyncio.Event().wait()
        return web.json_response({})

    fake_gateway.behavior = behave
    front = await start_server(max_lines=4)
    hanging, other = front.client("hanging"), front.client("other")
    for number in range(2):
        await create(hanging, lines(*(f"{number}-{at}" for at in range(8))))

    async def is_full() -> bool:
        return fake_gateway.num_running == 2

    await until(is_full)
    batch = await create(other, lines(*map(str, range(20))))
    await until_status(other, batch.id, "completed")
    assert fake_gateway.num_running == 2


async def test_long_lines_take_bounded_memory(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    may_answer, most = asyncio.Event(), 0

    async def behave(line: Received) -> web.Response:
        nonlocal most
        most = max(most, fake_gateway.num_running)
        await may_answer.wait()
        return web.json_response({})

    fake_gateway.behavior = behave
    client = (await start_server(max_line_bytes=10_000, line_memory_bytes=1)).client()
    content = lines(*"abcd").replace(b'"chat"', b'"chat", "user": "%s"' % (b"x" * 9_000))
    batches = [await create(client, content) for _ in range(5)]

    async def is_full() -> bool:
        return fake_gateway.num_running == 8  # of 20: 80 kB are half of the limit

    await until(is_full)
    may_answer.set()
    for each in batches:
        await until_status(client, each.id, "completed")
    assert most == 8


async def test_lines_whose_answers_find_no_memory_are_sent_again(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    arrived = asyncio.Event()

    async def behave(line: Received) -> web.Response:
        if fake_gateway.num_running == 4:
            arrived.set()
        await arrived.wait()
        return web.json_response({"text": "x" * 60_000})

    fake_gateway.behavior = behave
    client = (await start_server(max_line_bytes=10_000, line_memory_bytes=1)).client()
    batch = await create(client, lines(*"abcd"))
    batch = await until_status(client, batch.id, "completed")
    assert batch.request_counts.completed == 4


def test_memory_is_given_back() -> None:
    limit = memory_limit(1, 10)
    memory = LineMemory(limit, "a", 10)
    with memory.reading(), memory.answer() as grow:
        assert grow(70)
        assert not grow(1)
        assert not memory.has_room
        assert LineMemory(limit, "b", 10).has_room
    memory.add(5)
    assert limit.held == 5
    memory.close()
    assert limit.held == 0
