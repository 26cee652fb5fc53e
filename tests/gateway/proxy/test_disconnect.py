"""A client that disconnects cancels the engine's work, in every phase."""

import asyncio
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import STREAMED

from penstock.core.routing.apis import APIS

CHUNK = b'data: {"n": 0}\n\n'


async def silent(request):
    await asyncio.Event().wait()


async def headers_then_silent(request):
    await request.head()
    await asyncio.Event().wait()


async def endless(request):
    await request.head()
    while True:
        await request.chunk(CHUNK)
        await asyncio.sleep(0.01)


async def half_a_body(request):
    await request.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    await asyncio.Event().wait()


WAYS = pytest.mark.parametrize("path", [api.path for api in APIS])
STREAMED_WAYS = pytest.mark.parametrize("path", STREAMED)
STREAM = pytest.mark.parametrize("stream", [True, False])


@WAYS
@STREAM
@pytest.mark.parametrize("behavior", [silent, headers_then_silent, half_a_body])
async def test_disconnect_before_the_first_byte(
    start_engine, start_gateway, path, stream, behavior
):
    engine = await start_engine(behavior)
    front = await start_gateway(engine)
    asking = asyncio.create_task(front.ask(path, stream=stream))
    await engine.arrived.wait()
    await asyncio.sleep(0.02)

    asking.cancel()

    async with asyncio.timeout(5):
        await engine.left.wait()
    await front.idle()
    assert engine.active == 0
    assert len(engine.requests) == 1
    assert await front.metric("penstock_gateway_disconnects_total", phase="first_byte") == 1
    assert await front.metric("penstock_gateway_responses_total", code="499") == 1


@STREAMED_WAYS
async def test_disconnect_while_streaming(start_engine, start_gateway, path, plain_or_tls):
    engine = await start_engine(endless)
    front = await start_gateway(engine, **plain_or_tls)
    got = await front.post(path).__aenter__()
    await got.content.readany()

    got.close()

    async with asyncio.timeout(5):
        await engine.left.wait()
    await front.idle()
    assert await front.metric("penstock_gateway_disconnects_total", phase="streaming") == 1


@STREAMED_WAYS
async def test_disconnect_of_a_client_that_does_not_read(start_engine, start_gateway, path):
    async def flood(request):
        await request.head()
        while True:
            await request.chunk(CHUNK * 5000)

    engine = await start_engine(flood)
    front = await start_gateway(engine)
    got = await front.post(path).__aenter__()
    await asyncio.sleep(0.3)  # every buffer between is full

    got.close()

    async with asyncio.timeout(5):
        await engine.left.wait()
    await front.idle()


@WAYS
@STREAM
async def test_disconnect_while_waiting_for_an_engine(
    start_gateway, make_service, until, path, stream
):
    front = await start_gateway()
    front.publish(make_service())
    asking = asyncio.create_task(front.ask(path, stream=stream))
    await until(lambda: front.gateway.state.waiting)

    asking.cancel()

    await front.idle()
    assert await front.metric("penstock_gateway_disconnects_total", phase="waiting") == 1


@STREAM
async def test_disconnect_while_waiting_for_a_retry(start_engine, start_gateway, stream):
    async def reset(request):
        request.reset()

    engine = await start_engine(reset)
    front = await start_gateway(engine, max_attempts=1000)
    asking = asyncio.create_task(front.ask(stream=stream))
    await engine.arrived.wait()

    asking.cancel()

    await front.idle()


async def test_disconnect_while_connecting(
    start_gateway, start_engine, make_service, until, stuck_address
):
    front = await start_gateway(connect_timeout_s=60)
    engine = await start_engine()
    stuck = replace(engine.endpoint(), address=stuck_address)
    front.publish(replace(make_service(), endpoints=(stuck,)))
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.engines.tokens)

    asking.cancel()

    await front.idle()


async def test_disconnect_while_sending_the_request(start_gateway):
    front = await start_gateway()
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    await writer.drain()
    await asyncio.sleep(0.05)

    writer.close()
    await writer.wait_closed()

    await front.idle()
    await asyncio.sleep(0.05)
    assert await front.metric("penstock_gateway_disconnects_total", phase="receiving") == 1


async def test_disconnects_at_random_times_leave_nothing_behind(start_engine, start_gateway, until):
    """Counters are zero and engines idle after many disconnects."""
    engines = [await start_engine(endless) for _ in range(3)]
    front = await start_gateway(*engines)
    asking = [asyncio.create_task(front.ask(stream=n % 2 == 0)) for n in range(150)]
    for n, task in enumerate(asking):
        asyncio.get_running_loop().call_later(0.004 * (n % 60), task.cancel)

    await asyncio.gather(*asking, return_exceptions=True)

    await front.idle()
    await until(lambda: not any(engine.active for engine in engines))
    async with asyncio.timeout(10):
        while await front.metric("penstock_gateway_requests_in_flight"):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
