"""Retries of requests that fail before the first byte of a response."""

import asyncio

import pytest
from tests.gateway.engine_answers import CHUNKS, DONE


async def reset_at_once(request):
    request.reset()


async def close_at_once(request):
    request.writer.close()


async def reset_after_headers(request):
    await request.head()
    await asyncio.sleep(0.02)
    request.reset()


async def end_after_headers(request):
    await request.head()
    await request.end()


async def break_within_first_event(request):
    await request.head()
    await request.chunk(CHUNKS[0][:-3])
    request.writer.close()


async def unavailable(request):
    await request.whole(b'{"error": {"message": "draining"}}', "503 Service Unavailable")


async def garbage(request):
    await request.send(b"\x00\x01 this is not HTTP\r\n\r\n")
    request.writer.close()


async def truncated_body(request):
    await request.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    request.writer.close()


BEFORE_THE_FIRST_BYTE = [
    reset_at_once, close_at_once, reset_after_headers, end_after_headers, break_within_first_event,
    unavailable, garbage,
]  # fmt: skip


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_BYTE)
async def test_failure_before_the_first_byte_is_retried_on_another_engine(
    start_engine, start_gateway, fault
):
    bad, good = await start_engine(fault), await start_engine()
    front = await start_gateway(bad, good)

    num_requests = 0
    while not bad.requests and num_requests < 64:  # until the bad one is picked: 50 % each time
        num_requests += 1
        status, body = await front.ask()
        assert (status, body) == (200, b"".join(CHUNKS) + DONE)

    assert len(good.requests) == num_requests
    assert bad.requests
    await front.idle()
    retries = await front.metric("penstock_gateway_retries_total", service="default/chat")
    assert retries == len(bad.requests)


@pytest.mark.parametrize("fault", [reset_at_once, truncated_body, unavailable])
async def test_truncated_complete_response_is_retried_on_another_engine(
    start_engine, start_gateway, fault
):
    bad, good = await start_engine(fault), await start_engine()
    front = await start_gateway(bad, good)

    num_requests = 0
    while not bad.requests and num_requests < 64:
        num_requests += 1
        assert (await front.ask(stream=False))[0] == 200
    assert bad.requests


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_refused_connection_is_retried_and_ejects_the_engine(
    start_engine, start_gateway, max_attempts
):
    dead, good = await start_engine(), await start_engine()
    await dead.stop()
    front = await start_gateway(dead, good, max_attempts=max_attempts)

    assert [(await front.ask())[0] for _ in range(40)] == [200] * 40

    # Three failures eject it; then it gets at most a probe or two.
    connects = await front.metric("penstock_gateway_retries_total", reason="connect")
    assert 1 <= connects <= 6


async def test_ejected_engine_gets_requests_again_once_it_answers(
    start_engine, start_gateway, monkeypatch
):
    flaky, good = await start_engine(), await start_engine()
    await flaky.stop()
    front = await start_gateway(flaky, good)
    while not front.gateway.state.endpoints.ejected([flaky.endpoint()], 0.0):
        await front.ask()

    await flaky.start()

    async with asyncio.timeout(10):
        while not flaky.requests:
            assert (await front.ask())[0] == 200


@pytest.mark.parametrize(
    ("fault", "status", "attempts"),
    [(reset_at_once, 502, 2), (garbage, 502, 2), (unavailable, 503, 3)],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_error_response_when_every_attempt_fails(
    start_engine, start_gateway, fault, status, attempts, stream
):
    engines = [await start_engine(fault), await start_engine(fault)]
    front = await start_gateway(*engines, max_attempts=3)

    async with front.post(stream=stream) as got:
        error = (await got.json())["error"]

    assert got.status == status
    assert error["code"] == status
    assert ("retry-after" in got.headers) == (status == 503)
    assert sum(len(engine.requests) for engine in engines) == attempts


async def test_single_engine_is_retried_after_a_backoff(start_engine, start_gateway):
    """A single engine leaves no other one to retry on."""

    async def fails_once(request):
        if len(engine.requests) == 1:
            request.reset()
        else:
            await request.whole(b"{}")

    engine = await start_engine(fails_once)
    front = await start_gateway(engine)

    assert await front.ask(stream=False) == (200, b"{}")


@pytest.mark.parametrize("stream", [True, False])
async def test_unreachable_engine_is_retried_until_it_is_back(start_engine, start_gateway, stream):
    """A killed container restarts in place while its pod still counts as ready."""
    engine = await start_engine()
    front = await start_gateway(engine, max_attempts=1)
    await engine.stop()
    asking = [asyncio.create_task(front.ask(stream=stream)) for _ in range(5)]
    await asyncio.sleep(1)

    await engine.start()

    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 5


async def test_unreachable_engine_is_a_503_after_the_wait_limit(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine, wait_for_endpoint_s=0.5)
    await engine.stop()

    assert (await front.ask())[0] == 503


async def test_connection_of_a_large_error_response_is_closed_when_another_engine_answers(
    start_engine, start_gateway
):
    """An endless response would otherwise keep its connection open."""

    async def endless_503(request):
        await request.head("application/json", "503 Service Unavailable")
        while True:
            await request.chunk(b"x" * 1000)
            await asyncio.sleep(0.001)

    bad, good = await start_engine(endless_503), await start_engine()
    front = await start_gateway(bad, good, max_buffered_answer_bytes=5000)
    while not bad.requests:
        assert (await front.ask())[0] == 200
    async with asyncio.timeout(5):
        await bad.left.wait()
