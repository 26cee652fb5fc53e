"""Responses that break off after their first byte, and streams that end in unusual ways."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from dataclasses import replace

import aiohttp
import pytest
from tests.gateway.engine_answers import CHUNKS, DONE, LAST_EVENTS, STREAMED, stream

from penstock.core.routing.apis import APIS

UPSTREAM = b'{"message": "%b", "type": "%b", "param": null, "code": 502}' % (
    b"the engine's response was cut off",
    b"upstream_error",
)
CUT = {
    "OpenAI": b'data: {"error": %b}\n\n' % UPSTREAM + DONE,
    "Responses": b'event: error\ndata: {"type": "error", "error": %b}\n\n' % UPSTREAM,
    "Anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": '
    b'"the engine\'s response was cut off"}}\n\n',
}
"""What follows the events of a stream that was cut off, by the form of the API's errors."""


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
@pytest.mark.parametrize("path", STREAMED)
async def test_truncated_stream_ends_with_an_error_event(start_engine, start_gateway, fault, path):
    engine = await start_engine(fault)
    front = await start_gateway(engine, await start_engine(fault))

    status, body = await front.ask(path)

    (form,) = (api.errors for api in APIS if api.path == path)
    assert (status, body) == (200, CHUNKS[0] + CUT[form])
    assert await front.metric("penstock_gateway_streams_cut_total", cause="upstream") == 1
    assert await front.metric("penstock_gateway_retries_total") == 0


@pytest.mark.parametrize("path", STREAMED)
async def test_stream_with_the_last_event_of_its_api_is_complete(start_engine, start_gateway, path):
    front = await start_gateway(await start_engine(stream(CHUNKS[0], LAST_EVENTS[path])))
    assert await front.ask(path) == (200, CHUNKS[0] + LAST_EVENTS[path])
    assert await front.metric("penstock_gateway_streams_cut_total") == 0


@pytest.mark.parametrize("path", STREAMED)
async def test_stream_that_begins_with_an_error_is_retried_once(start_engine, start_gateway, path):
    """The client gets the engine's own event, and DONE only where the API has it."""
    failing = b'event: error\ndata: {"type": "error", "error": {"message": "no"}}\n\n'
    engines = [await start_engine(stream(failing)) for _ in range(3)]
    front = await start_gateway(*engines)
    end = DONE if LAST_EVENTS[path] == DONE else b""
    assert await front.ask(path) == (200, failing + end)
    assert sum(len(engine.requests) for engine in engines) == 2


@pytest.mark.parametrize(
    "done", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]"]
)
@pytest.mark.parametrize("how", ["clean", "reset"])
async def test_stream_with_done_is_complete_however_it_closes(
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


async def test_truncated_large_response_is_incomplete_for_the_client(start_engine, start_gateway):
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


async def test_stream_that_hangs_after_done_is_complete(start_engine, start_gateway, monkeypatch):
    monkeypatch.setattr("penstock.gateway.upstream.response.END_AFTER_DONE_S", 0.05)

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


async def test_connection_is_reused_when_the_response_ends_after_done(start_engine, start_gateway):
    """An engine ends a response a little after DONE."""

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


async def test_streams_of_a_killed_engine_end_with_an_error_event(
    start_engine, start_gateway, make_service
):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENGINE, stdout=subprocess.PIPE
    )
    try:
        port = int(await process.stdout.readline())
        good = await start_engine()
        front = await start_gateway()
        killed = replace(good.endpoint(), pod="default/killed", address=f"127.0.0.1:{port}")
        front.publish(replace(make_service(), endpoints=(killed,)))
        streams = [await front.post().__aenter__() for _ in range(8)]
        for stream in streams:
            await stream.content.readany()
        front.publish(replace(make_service(), endpoints=(killed, good.endpoint())))

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
