"""Requests that are open when the gateway stops, and connections during its drain."""

import asyncio
import json


def error_of(body):
    error = json.loads(body)["error"]
    return error["message"], error["type"], error["code"]


async def test_waiting_request_gets_a_503_with_retry_after(start_gateway, make_service, until):
    front = await start_gateway()
    front.publish(make_service())
    posted = asyncio.create_task(front.post().__aenter__())
    await until(lambda: front.gateway.state.waiting == 1)
    front.gateway.cancel_requests()
    got = await posted
    assert (got.status, got.headers["retry-after"]) == (503, "5")
    assert error_of(await got.read()) == ("the gateway is stopping", "overloaded_error", 503)


async def test_request_before_the_first_snapshot_gets_a_503(start_gateway, until):
    front = await start_gateway(synced=False)
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.cancel_scopes)
    front.gateway.cancel_requests()
    status, body = await asking
    assert (status, error_of(body)[0]) == (503, "the gateway is stopping")


async def test_draining_gateway_closes_connections_after_their_response(
    start_engine, start_gateway
):
    front = await start_gateway(await start_engine())
    async with front.post(stream=False) as got:
        await got.read()
        assert "connection" not in got.headers
    front.gateway.drain()
    for stream in (True, False):
        async with front.post(stream=stream) as got:
            await got.read()
            assert got.headers["connection"] == "close"


async def test_stream_of_a_client_that_does_not_read_ends_with_an_error_event(
    start_engine, start_gateway, until
):
    async def endless(request):
        await request.head()
        while True:
            await request.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")

    front = await start_gateway(await start_engine(endless))
    async with front.post() as got:
        await asyncio.sleep(0.3)
        front.gateway.cancel_requests()
        assert b"the gateway is stopping" in await got.read()
    await front.idle()
    assert await front.metric("penstock_gateway_streams_cut_total", cause="shutdown") == 1
    assert await front.metric("penstock_gateway_disconnects_total") == 0
