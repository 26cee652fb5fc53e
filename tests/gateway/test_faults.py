"""Engines that fail, at each point of an answer."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from dataclasses import replace

import aiohttp
import pytest

CHUNKS = [b'data: {"n": %d}\n\n' % n for n in range(5)]
DONE = b"data: [DONE]\n\n"


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
async def test_a_failure_before_the_first_byte_is_tried_elsewhere(
    start_engine, start_gateway, fault
):
    bad, good = await start_engine(fault), await start_engine()
    front = await start_gateway(bad, good)

    asked = 0
    while not bad.requests and asked < 64:  # until the bad one is picked first: each a coin's toss
        asked += 1
        status, body = await front.ask()
        assert (status, body) == (200, b"".join(CHUNKS) + DONE)

    assert len(good.requests) == asked
    assert bad.requests
    await front.idle()
    retries = await front.metric("penstock_gateway_retries_total", service="default/chat")
    assert retries == len(bad.requests)


@pytest.mark.parametrize("fault", [reset_at_once, truncated_body, unavailable])
async def test_a_whole_answer_that_breaks_off_is_tried_elsewhere(
    start_engine, start_gateway, fault
):
    bad, good = await start_engine(fault), await start_engine()
    front = await start_gateway(bad, good)

    asked = 0
    while not bad.requests and asked < 64:
        asked += 1
        assert (await front.ask(stream=False))[0] == 200
    assert bad.requests


async def test_a_refused_connection_is_tried_elsewhere_and_ejected(start_engine, start_gateway):
    dead, good = await start_engine(), await start_engine()
    await dead.stop()
    front = await start_gateway(dead, good)

    assert [(await front.ask())[0] for _ in range(40)] == [200] * 40

    # Three failures put it aside; at most a probe or two came after that.
    connects = await front.metric("penstock_gateway_retries_total", reason="connect")
    assert 1 <= connects <= 6


async def test_an_ejected_engine_comes_back(start_engine, start_gateway, monkeypatch):
    flaky, good = await start_engine(), await start_engine()
    await flaky.stop()
    front = await start_gateway(flaky, good)
    while not front.gateway.shared.loads.ejected([flaky.endpoint()], 0.0):
        await front.ask()

    await flaky.start()

    async with asyncio.timeout(10):
        while not flaky.requests:
            assert (await front.ask())[0] == 200


@pytest.mark.parametrize(
    ("fault", "status"), [(reset_at_once, 502), (garbage, 502), (unavailable, 503)]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_when_every_attempt_fails_the_error_is_clean(
    start_engine, start_gateway, fault, status, stream
):
    engines = [await start_engine(fault), await start_engine(fault)]
    front = await start_gateway(*engines, max_attempts=3)

    async with front.post(stream=stream) as got:
        error = (await got.json())["error"]

    assert got.status == status
    assert error["code"] == status
    assert ("retry-after" in got.headers) == (status == 503)
    assert sum(len(engine.requests) for engine in engines) == 3


async def test_engines_that_failed_are_tried_again_after_a_pause(start_engine, start_gateway):
    """With a single engine there is nowhere else to go."""
    attempts = 0

    async def fails_twice(request):
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            request.reset()
        else:
            await request.whole(b"{}")

    front = await start_gateway(await start_engine(fails_twice))

    assert await front.ask(stream=False) == (200, b"{}")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_dead_engine_that_is_still_listed_is_tried_until_it_is_back(
    start_engine, start_gateway, stream
):
    """A killed container restarts in place; nobody has noticed yet."""
    engine = await start_engine()
    front = await start_gateway(engine, max_attempts=1)
    await engine.stop()
    asking = [asyncio.create_task(front.ask(stream=stream)) for _ in range(5)]
    await asyncio.sleep(1)

    await engine.start()

    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 5


async def test_a_dead_engine_is_not_tried_for_ever(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine, wait_for_endpoint_s=0.5)
    await engine.stop()

    assert (await front.ask())[0] == 503


async def broken_off(request):
    await request.head()
    await request.chunk(CHUNKS[0])
    await asyncio.sleep(0.02)
    request.reset()


async def broken_off_within_an_event(request):
    await request.head()
    await request.chunk(CHUNKS[0] + CHUNKS[1][:-4])
    await asyncio.sleep(0.02)
    request.writer.close()


async def ended_without_done(request):
    await request.head()
    await request.chunk(CHUNKS[0])
    await request.end()


@pytest.mark.parametrize("fault", [broken_off, broken_off_within_an_event, ended_without_done])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream_that_breaks_off_ends_with_an_error_event(
    start_engine, start_gateway, fault, path
):
    engine = await start_engine(fault)
    front = await start_gateway(engine, await start_engine(fault))

    status, body = await front.ask(path)

    first, error, done, rest = body.split(b"\n\n")
    assert (status, first + b"\n\n", done, rest) == (200, CHUNKS[0], b"data: [DONE]", b"")
    said = json.loads(error.removeprefix(b"data: "))["error"]
    assert (said["type"], said["code"]) == ("upstream_error", 502)
    assert await front.metric("penstock_gateway_streams_cut_total", cause="upstream") == 1
    assert await front.metric("penstock_gateway_retries_total") == 0


@pytest.mark.parametrize(
    "done", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]"]
)
@pytest.mark.parametrize("how", ["clean", "reset"])
async def test_a_stream_with_its_last_word_is_complete_however_it_closes(
    start_engine, start_gateway, done, how
):
    async def behave(request):
        await request.head()
        await request.chunk(CHUNKS[0])
        await request.chunk(done)
        if how == "clean":
            await request.end()
        else:
            await asyncio.sleep(0.02)
            request.writer.close()

    front = await start_gateway(await start_engine(behave))

    status, body = await front.ask()

    if how == "clean" or done.endswith(b"\n"):
        assert (status, body) == (200, CHUNKS[0] + done)


async def test_a_large_whole_answer_that_breaks_off_is_seen_as_incomplete(
    start_engine, start_gateway
):
    async def behave(request):
        await request.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900000\r\n\r\n"
        )
        await request.send(b"x" * 100_000)
        await asyncio.sleep(0.02)
        request.reset()

    front = await start_gateway(await start_engine(behave), max_buffered_answer_bytes=1000)

    with pytest.raises(aiohttp.ClientPayloadError):
        await front.ask(stream=False)
    await front.idle()


async def silent(request):
    await asyncio.Event().wait()


async def silent_after_headers(request):
    await request.head()
    await asyncio.Event().wait()


@pytest.mark.parametrize("fault", [silent, silent_after_headers])
@pytest.mark.parametrize("stream", [True, False])
async def test_no_first_byte_in_time_is_a_504_and_frees_the_engine(
    start_engine, start_gateway, fault, stream
):
    engine = await start_engine(fault)
    limit = "first_byte_timeout_s" if stream else "total_timeout_s"
    front = await start_gateway(engine, **{limit: 0.1})

    status, body = await front.ask(stream=stream)

    assert status == 504
    assert json.loads(body)["error"]["type"] == "upstream_error"
    await engine.left.wait()
    assert len(engine.requests) == 1  # the work may be what is slow: it is not done twice
    await front.idle()


async def test_a_stream_that_stands_still_is_cut(start_engine, start_gateway):
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


async def test_slow_chunks_are_fine_and_the_total_is_bounded(start_engine, start_gateway):
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


async def test_a_connection_that_is_not_taken_is_given_up(
    start_gateway, start_engine, make_service, stuck_address
):
    good = await start_engine()
    front = await start_gateway(connect_timeout_s=0.1)
    stuck = replace(good.endpoint(), pod="default/stuck", address=stuck_address)
    front.show(replace(make_service(good), endpoints=(good.endpoint(), stuck)))

    assert [(await front.ask())[0] for _ in range(6)] == [200] * 6


async def test_a_whole_answer_may_take_longer_than_a_first_byte(start_engine, start_gateway):
    async def slow(request):
        await asyncio.sleep(0.3)
        await request.whole(b"{}")

    front = await start_gateway(await start_engine(slow), first_byte_timeout_s=0.1)

    assert (await front.ask(stream=False))[0] == 200
    assert (await front.ask(stream=True))[0] == 504


async def test_a_large_answer_that_another_engine_replaces_is_ended(start_engine, start_gateway):
    """Or it would go on coming, and hold its connection."""

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


async def test_a_stream_that_hangs_behind_its_last_word_is_complete(
    start_engine, start_gateway, monkeypatch
):
    monkeypatch.setattr("penstock.gateway.upstream.END_AFTER_DONE_S", 0.05)

    async def hangs(request):
        await request.head()
        await request.chunk(CHUNKS[0])
        await request.chunk(DONE)
        await asyncio.Event().wait()

    engine = await start_engine(hangs)
    front = await start_gateway(engine, between_chunks_timeout_s=0.5)

    assert await front.ask() == (200, CHUNKS[0] + DONE)
    await engine.left.wait()
    assert await front.metric("penstock_gateway_streams_cut_total") == 0


async def test_connections_are_kept_behind_the_last_word(start_engine, start_gateway):
    """The end of an answer comes a little later than DONE; its connection serves the next request."""

    async def ends_later(request):
        await request.head()
        await request.chunk(CHUNKS[0] + DONE)
        await asyncio.sleep(0.05)
        await request.end()

    engine = await start_engine(ends_later)
    front = await start_gateway(engine)
    for _ in range(3):
        assert (await front.ask())[0] == 200
    assert len({request.writer for request in engine.requests}) == 1


ENGINE = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for n in range(10**6):
            self.wfile.write(b"10\\r\\ndata: {'n': 1}\\n\\n\\r\\n")
            self.wfile.flush()
            time.sleep(0.01)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


async def test_an_engine_that_is_killed_cuts_its_streams_with_an_event(
    start_engine, start_gateway, make_service
):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENGINE, stdout=subprocess.PIPE
    )
    try:
        port = int(await process.stdout.readline())
        good = await start_engine()
        front = await start_gateway()
        doomed = replace(good.endpoint(), pod="default/doomed", address=f"127.0.0.1:{port}")
        front.show(replace(make_service(), endpoints=(doomed,)))
        streams = [await front.post().__aenter__() for _ in range(8)]
        for stream in streams:
            await stream.content.readany()
        front.show(replace(make_service(), endpoints=(doomed, good.endpoint())))

        process.send_signal(signal.SIGKILL)

        for stream in streams:
            body = await stream.read()
            assert body.endswith(DONE)
            assert body.count(b'"type": "upstream_error"') == 1
        assert [(await front.ask())[0] for _ in range(20)] == [200] * 20
        await front.idle()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
