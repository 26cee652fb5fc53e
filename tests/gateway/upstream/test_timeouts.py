"""Time limits for connections to engines, first bytes, chunks and whole requests."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.gateway.engine_answers import CHUNKS, DONE


async def silent(request):
    await asyncio.Event().wait()


async def silent_after_headers(request):
    await request.head()
    await asyncio.Event().wait()


@pytest.mark.parametrize("fault", [silent, silent_after_headers])
@pytest.mark.parametrize("stream", [True, False])
async def test_first_byte_timeout_is_a_504_and_cancels_the_engines_work(
    start_engine, start_gateway, fault, stream
):
    engine = await start_engine(fault)
    limit = "first_byte_timeout_s" if stream else "total_timeout_s"
    front = await start_gateway(engine, **{limit: 0.1})

    status, body = await front.ask(stream=stream)

    assert status == 504
    assert json.loads(body)["error"]["type"] == "upstream_error"
    await engine.left.wait()
    assert len(engine.requests) == 1  # no retry: the request itself may be slow
    await front.idle()


async def test_timeout_between_chunks_ends_the_stream_with_an_error_event(
    start_engine, start_gateway
):
    async def behave(request):
        await request.head()
        await request.chunk(CHUNKS[0])
        await asyncio.Event().wait()

    engine = await start_engine(behave)
    front = await start_gateway(engine, between_chunks_timeout_s=0.1)

    status, body = await front.ask()

    assert status == 200
    assert body.startswith(CHUNKS[0])
    assert b'"code": 504' in body
    assert body.endswith(DONE)
    await engine.left.wait()
    assert await front.metric("penstock_gateway_streams_cut_total", cause="timeout") == 1


async def test_total_timeout_ends_a_slow_stream(start_engine, start_gateway):
    async def behave(request):
        await request.head()
        for n in range(10_000):
            await request.chunk(CHUNKS[n % 5])
            await asyncio.sleep(0.02)

    engine = await start_engine(behave)
    front = await start_gateway(engine, between_chunks_timeout_s=5, total_timeout_s=0.5)

    status, body = await front.ask()

    assert status == 200
    assert body.count(b'"n"') > 3
    assert b'"code": 504' in body
    await engine.left.wait()


async def test_connect_timeout_is_retried_on_another_engine(
    start_gateway, start_engine, make_service, stuck_address
):
    good = await start_engine()
    front = await start_gateway(connect_timeout_s=0.1)
    stuck = replace(good.endpoint(), pod="default/stuck", address=stuck_address)
    front.publish(replace(make_service(good), endpoints=(good.endpoint(), stuck)))

    assert [(await front.ask())[0] for _ in range(6)] == [200] * 6


async def test_first_byte_timeout_does_not_limit_complete_responses(start_engine, start_gateway):
    async def slow(request):
        await asyncio.sleep(0.3)
        await request.whole(b"{}")

    front = await start_gateway(await start_engine(slow), first_byte_timeout_s=0.1)

    assert (await front.ask(stream=False))[0] == 200
    assert (await front.ask(stream=True))[0] == 504
