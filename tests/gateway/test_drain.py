"""The drain of a gateway: not ready, finish streams, cut off the rest, exit 0."""

import asyncio

import aiohttp
import pytest
from tests.gateway.engine_answers import DONE

CHUNK = b'data: {"n": 0}\n\n'


async def test_open_streams_finish_before_the_process_ends(start_engine, start_gateway):
    go = asyncio.Event()

    async def behave(request):
        await request.head()
        await request.chunk(CHUNK)
        await go.wait()
        await request.chunk(DONE)
        await request.end()

    front = await start_gateway(await start_engine(behave), drain_delay_s=0.3, drain_timeout_s=30)
    got = await front.post().__aenter__()
    assert await got.content.readany() == CHUNK

    front.stop.set()
    await asyncio.sleep(0.05)

    async with front.client.get(
        front.management_url + "/readyz"
    ) as ready:  # answered still, and unready
        assert ready.status == 503
    late = await front.post().__aenter__()  # load balancers have not heard of it yet
    assert late.headers["connection"] == "close"
    await asyncio.sleep(0.6)
    with pytest.raises(aiohttp.ClientConnectorError):
        await front.ask()
    go.set()
    assert await got.content.read() == DONE
    assert (await late.read()).endswith(DONE)
    async with asyncio.timeout(5):
        await front.task


async def test_streams_after_the_drain_timeout_end_with_an_error_event(
    start_engine, start_gateway, make_service, until
):
    async def endless(request):
        await request.head()
        while True:
            await request.chunk(CHUNK)
            await asyncio.sleep(0.01)

    async def silent(request):
        await asyncio.Event().wait()

    engine, mute = await start_engine(endless), await start_engine(silent)
    front = await start_gateway(drain_delay_s=0.05, drain_timeout_s=0.3)
    front.publish(make_service(engine), make_service(mute, name="mute"), make_service(name="none"))
    stream = await front.post().__aenter__()
    asking = [asyncio.create_task(front.ask(model=model)) for model in ("mute", "none")]
    await mute.arrived.wait()
    await until(lambda: front.gateway.state.waiting)

    front.stop.set()

    body = await stream.content.read()
    assert body.startswith(CHUNK)
    assert body.count(b'"code": 503') == 1
    assert body.endswith(DONE)
    assert [status for status, _ in await asyncio.gather(*asking)] == [503, 503]
    async with asyncio.timeout(10):
        await front.task
    await engine.left.wait()
    await mute.left.wait()
