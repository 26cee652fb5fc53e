"""Answers of engines that are held until they are complete, and the bound on their memory."""

import asyncio

import pytest
from tests.gateway.engine_answers import DONE

EVENT = b'data: {"n": 0}\n\n'


@pytest.mark.parametrize("more", [0, 1])
async def test_complete_response_is_held_up_to_its_limit(start_engine, start_gateway, more):
    """A larger response is passed on as it arrives, without a length."""

    async def behave(request):
        await request.head("application/json")
        await request.chunk(b"x" * 600)
        await request.chunk(b"x" * (400 + more))
        await request.end()

    front = await start_gateway(await start_engine(behave), max_buffered_answer_bytes=1000)
    async with front.post(stream=False) as got:
        assert await got.read() == b"x" * (1000 + more)
    assert ("content-length" in got.headers) == (not more)
    assert ("transfer-encoding" in got.headers) == bool(more)


@pytest.mark.parametrize(("num_bytes", "is_held"), [(100, True), (101, False)])
async def test_responses_to_one_service_are_held_up_to_its_share(
    start_engine, start_gateway, until, make_service, num_bytes, is_held
):
    """Further ones are passed on as they arrive, while those to services of other namespaces are held."""
    go = asyncio.Event()

    async def behave(request):
        await request.head("application/json")
        await request.chunk(b"x" * 600)
        await go.wait()
        await request.end()

    async def last(request):
        await request.head("application/json")
        await request.chunk(b"x" * num_bytes)
        await request.end()

    engine = await start_engine(behave)
    front = await start_gateway(synced=False, max_held_answer_bytes=1600)
    services = [make_service(engine, namespace=each, name=each) for each in ("party", "others")]
    front.publish(*services)
    upstream = front.gateway.state.upstream
    first = asyncio.create_task(front.ask(stream=False, model="party"))
    await until(lambda: upstream.held_bytes == 600)
    engine.behavior = last
    for model in ("party", "others"):
        async with front.post(stream=False, model=model) as got:
            assert await got.read() == b"x" * num_bytes
        assert ("content-length" in got.headers) == (is_held or model == "others")
        assert upstream.held_bytes == 600
    go.set()
    assert await first == (200, b"x" * 600)
    assert upstream.held_bytes == 0


@pytest.mark.parametrize("is_first", [True, False])
async def test_large_event_of_a_stream_counts_for_its_service(
    start_engine, start_gateway, until, make_service, is_first
):
    """An answer beyond the share is passed on in pieces, while those of other namespaces are held."""
    go = asyncio.Event()
    start = b"data: ".ljust(100_000, b"x")

    async def behave(request):
        await request.head()
        if not is_first:
            await request.chunk(EVENT)
        await request.chunk(start)
        await go.wait()
        await request.chunk(b"\n\n" + DONE)
        await request.end()

    front = await start_gateway(synced=False, max_held_answer_bytes=350_000)
    engine = await start_engine(behave)
    services = [make_service(engine, namespace=each, name=each) for each in ("party", "others")]
    front.publish(*services)
    held = front.gateway.state.upstream
    first = asyncio.create_task(front.ask(model="party"))
    await until(lambda: held.held_bytes == 100_000)
    expected = EVENT * (not is_first) + start + b"\n\n" + DONE
    async with front.post(model="party") as second:
        beginning = await second.content.readexactly(70_000)
        assert held.held_bytes == 100_000
        other = asyncio.create_task(front.ask(model="others"))
        await until(lambda: held.held_bytes == 200_000)
        go.set()
        assert beginning + await second.read() == expected
    assert [await first, await other] == [(200, expected)] * 2
    assert held.held_bytes == 0


async def test_truncated_response_frees_its_memory(start_engine, start_gateway):
    async def behave(request):
        await request.head("application/json")
        await request.chunk(b"x" * 600)
        request.reset()

    front = await start_gateway(await start_engine(behave))
    assert (await front.ask(stream=False))[0] == 502
    assert front.gateway.state.upstream.held_bytes == 0


async def test_error_of_an_engine_is_held_until_it_is_sent(start_engine, start_gateway, until):
    hold = asyncio.Event()
    bodies = iter([b"x" * 600, b"y" * 700])

    async def fail(request):
        body = next(bodies)
        if body[:1] == b"y":
            await hold.wait()
        await request.whole(body, "500 Failed")

    engines = [await start_engine(fail), await start_engine(fail)]
    front = await start_gateway(*engines)
    upstream = front.gateway.state.upstream
    asking = asyncio.create_task(front.ask(stream=False))
    await until(lambda: all(engine.requests for engine in engines))
    assert upstream.held_bytes == 600
    hold.set()
    assert await asking == (500, b"y" * 700)
    await front.idle()
    assert upstream.held_bytes == 0


async def test_complete_error_response_is_preferred_to_a_too_large_one(start_engine, start_gateway):

    async def whole(request):
        await request.whole(b'{"error": "first"}', "500 Internal Server Error")

    async def large(request):
        await request.whole(b"x" * 5000, "500 Internal Server Error")

    front = await start_gateway(
        await start_engine(whole), await start_engine(large), max_buffered_answer_bytes=1000
    )
    for _ in range(10):
        assert await front.ask() == (500, b'{"error": "first"}')


async def test_too_large_error_response_is_a_502(start_engine, start_gateway):
    async def large(request):
        await request.whole(b"x" * 5000, "500 Internal Server Error")

    front = await start_gateway(await start_engine(large), max_buffered_answer_bytes=1000)
    status, body = await front.ask()
    assert (status, b"the engines that were tried did not answer" in body) == (502, True)
