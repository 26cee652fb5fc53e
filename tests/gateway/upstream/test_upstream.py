"""Requests to engines: what is passed on of responses, and which are retried."""

import asyncio
import gzip
import io

import pytest
from tests.gateway.engine_answers import DONE

from penstock.gateway.upstream.upstream import body_payload

EVENT = b'data: {"n": 0}\n\n'


def test_large_body_is_sent_in_pieces():
    assert body_payload(b"x" * 65_536) == b"x" * 65_536
    pieces = body_payload(b"x" * 65_537)
    assert isinstance(pieces, io.BytesIO)
    assert pieces.read() == b"x" * 65_537


@pytest.mark.parametrize(
    ("status", "is_final"), [(101, False), (200, True), (599, True), (600, False)]
)
async def test_response_without_a_final_status_is_a_failure(
    start_engine, start_gateway, status, is_final
):
    async def behave(request):
        await request.whole(b"{}", f"{status} Odd")

    engine = await start_engine(behave)
    front = await start_gateway(engine, max_attempts=1)
    assert (await front.ask(stream=False))[0] == (status if is_final else 502)


@pytest.mark.parametrize("status", ["302 Found", "204 No Content", "201 Created"])
async def test_response_below_400_is_passed_on(start_engine, start_gateway, status):
    async def behave(request):
        extra = f"location: http://{request.headers['host']}/other\r\nx-kept: 1\r\n"
        await request.whole(b"", status, extra)

    engine = await start_engine(behave)
    front = await start_gateway(engine)
    async with front.client.post(
        front.url + "/v1/completions", json={"model": "chat"}, allow_redirects=False
    ) as got:
        assert (got.status, await got.read()) == (int(status.split()[0]), b"")
    assert got.headers["x-kept"] == "1"
    assert "location" not in got.headers  # clients do not reach engines
    assert [request.path for request in engine.requests] == ["/v1/completions"]


async def test_cookies_and_further_content_types_are_not_passed_on(start_engine, start_gateway):
    async def behave(request):
        extra = "set-cookie: a=b\r\ncontent-type: text/html\r\nx-a: 1\r\nx-a: 2\r\n"
        await request.whole(b"{}", extra=extra)

    front = await start_gateway(await start_engine(behave))
    async with front.post(stream=False) as got:
        assert got.headers.getall("content-type") == ["application/json"]
        assert got.headers.getall("x-a") == ["1", "2"]
        assert "set-cookie" not in got.headers


async def test_encoded_response_is_passed_on_unchanged(start_engine, start_gateway):
    body = gzip.compress(b'{"choices": []}')

    async def behave(request):
        await request.whole(body, extra="content-encoding: gzip\r\n")

    front = await start_gateway(await start_engine(behave))
    async with front.post(stream=False) as got:
        assert got.headers["content-encoding"] == "gzip"
        assert got.headers["content-length"] == str(len(body))
        assert await got.read() == b'{"choices": []}'


async def test_requests_to_one_engine_are_concurrent(start_engine, start_gateway, until):
    hold = asyncio.Event()

    async def late(request):
        await hold.wait()
        await request.whole(b"{}")

    engine = await start_engine(late)
    front = await start_gateway(engine)
    requests = [asyncio.create_task(front.ask(stream=False)) for _ in range(20)]
    await until(lambda: engine.active == 20)
    hold.set()
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 20


@pytest.mark.parametrize(
    ("kind", "status"), [("text/event-stream; charset=utf-8", "200 OK"), ("text/plain", "200 OK"),
                         ("text/event-stream", "201 Created")],
)  # fmt: skip
async def test_only_a_200_with_the_event_stream_type_is_a_stream(
    start_engine, start_gateway, kind, status
):
    """Other responses are held until they are complete."""

    async def behave(request):
        await request.head(kind, status)
        await request.chunk(EVENT)
        await request.chunk(EVENT[:5])
        await request.end()

    front = await start_gateway(await start_engine(behave), max_attempts=1)
    got, body = await front.ask()
    assert got == int(status.split()[0])
    if kind.startswith("text/event-stream") and got == 200:
        assert body.startswith(EVENT + b'data: {"error"')
    else:
        assert body == EVENT + EVENT[:5]


@pytest.mark.parametrize("end", [b"", DONE])
async def test_error_event_at_the_start_is_retried_then_passed_on_with_done(
    start_engine, start_gateway, end
):
    event = b'data: {"error": {"message": "mine", "code": 500}}\n\n'

    async def behave(request):
        await request.head()
        await request.chunk(event + end)
        await request.end()

    engines = [await start_engine(behave) for _ in range(3)]
    front = await start_gateway(*engines)
    async with front.post() as got:
        assert (got.status, await got.read()) == (200, event + DONE)
    assert got.content_type == "text/event-stream"
    assert sum(len(engine.requests) for engine in engines) == 2
    await front.idle()
    stats = front.gateway.state.stats.get("default/chat")
    assert (stats.failed, stats.ended) == (1, 0)


@pytest.mark.parametrize("code", [400, 501, 504])
async def test_error_event_about_the_request_is_not_retried(start_engine, start_gateway, code):
    event = b'data: {"error": {"message": "mine", "code": %d}}\n\n' % code

    async def behave(request):
        await request.head()
        await request.chunk(event + DONE)
        await request.end()

    engines = [await start_engine(behave) for _ in range(2)]
    front = await start_gateway(*engines)
    assert await front.ask() == (200, event + DONE)
    assert sum(len(engine.requests) for engine in engines) == 1


async def test_connections_to_engines_are_reused(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    for stream in (True, False, True, False):
        assert (await front.ask(stream=stream))[0] == 200
    assert len({request.writer for request in engine.requests}) == 1


async def test_cookies_of_engines_are_not_stored(start_engine, start_gateway):
    async def behave(request):
        await request.whole(b"{}", extra="set-cookie: a=b\r\n")

    engine = await start_engine(behave)
    front = await start_gateway(engine)
    for _ in range(2):
        await front.ask(stream=False)
    assert all("cookie" not in request.headers for request in engine.requests)
