"""Invalid requests get a 4xx, and the gateway keeps serving."""

import asyncio
import contextlib
import json

import pytest

JSON = {"content-type": "application/json"}

BODIES = {
    "empty": (b"", 400), "space": (b"   ", 400), "word": (b"model", 400), "null": (b"null", 400),
    "number": (b"1", 400), "string": (b'"chat"', 400), "list": (b'["chat"]', 400),
    "true": (b"true", 400), "half": (b'{"model": "chat"', 400), "comma": (b'{"model": "chat",}', 400),
    "single quotes": (b"{'model': 'chat'}", 400), "twice": (b'{"model": "chat"} {}', 400),
    "no model": (b"{}", 400), "null model": (b'{"model": null}', 400),
    "number model": (b'{"model": 7}', 400), "list model": (b'{"model": ["chat"]}', 400),
    "empty model": (b'{"model": ""}', 400), "object model": (b'{"model": {}}', 400),
    "not UTF-8": (b'{"model": "\xff\xfe"}', 400), "latin": (b'{"model": "caf\xe9"}', 400),
    "NUL": (b'{"model": "chat\x00"}', 400), "deep": (b"[" * 100_000, 400),
    "deep object": (b'{"a":' * 15_000, 400), "huge number": (b'{"model": ' + b"9" * 10_000 + b"}", 400),
    "UTF-16 surrogate": (b'{"model": "\\ud800"}', 400), "unknown": (b'{"model": "gpt-9"}', 404),
    "case": (b'{"model": "CHAT"}', 404), "padded": (b'{"model": " chat"}', 404),
    "path": (b'{"model": "../chat"}', 404), "wrong namespace": (b'{"model": "other/chat"}', 404),
    "slash": (b'{"model": "/chat"}', 404), "trailing slash": (b'{"model": "default/chat/"}', 404),
    "long name": (b'{"model": "' + b"x" * 50_000 + b'"}', 404),
    "too large": (b'{"model": "chat", "x": "' + b"x" * 200_000 + b'"}', 413),
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
async def test_invalid_body(start_engine, start_gateway, path, body, status):
    engine = await start_engine()
    front = await start_gateway(engine, max_body_bytes=100_000)

    async with front.client.post(front.url + path, data=body, headers=JSON) as got:
        text = await got.text()

    assert got.status == status
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(text) < 1000
    assert engine.requests == []
    assert (await front.ask(stream=False))[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 200),
        ({"content-type": ""}, 200),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 415),
        ({"content-type": "application/json", "x-large": "y" * 40_000}, 431),
        ({"content-type": "APPLICATION/JSON; charset=utf-8"}, 200),
    ],
)
async def test_invalid_headers(start_engine, start_gateway, headers, status):
    front = await start_gateway(await start_engine())

    async with front.client.post(
        front.url + "/v1/completions", data=b'{"model": "chat"}', headers=headers
    ) as got:
        body = await got.json()

    assert got.status == status
    assert ("error" in body) == (status != 200)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405), ("PUT", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405), ("GET", "/healthz", 404), ("POST", "/v1/no-such-route", 404),
        ("GET", "/", 404), ("POST", "/v1/chat/completions/", 404), ("GET", "/v1/../metrics/x", 404),
        ("POST", "//v1/completions", 404), ("GET", "/docs", 404), ("GET", "/openapi.json", 404),
    ],
)  # fmt: skip
async def test_unknown_paths_and_methods(start_gateway, method, path, status):
    front = await start_gateway()

    async with front.client.request(method, front.url + path, data=b"{}") as got:
        body = await got.json()

    assert (got.status, body["error"]["code"]) == (status, status)


POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
RAW = {
    "not HTTP": b"hello\r\n\r\n",
    "no version": b"POST /v1/completions\r\n\r\n",
    "bad version": b"POST / HTTP/9.9\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "two lengths": POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "negative length": POST + b"content-length: -1\r\n\r\n",
    "word length": POST + b"content-length: two\r\n\r\n",
    "length and chunked": POST
    + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": POST + b"transfer-encoding: chunked, cow\r\n\r\n0\r\n\r\n",
    "bad chunk": POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "space in header name": b"POST /v1/completions HTTP/1.1\r\nho st: x\r\n\r\n",
    "NUL in header": b"POST /v1/completions HTTP/1.1\r\nhost: x\x00y\r\n\r\n",
    "obs-fold": POST + b" folded\r\n\r\n",
    "non-ASCII path": b"POST /v1/\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n",
    "endless header": b"POST /v1/completions HTTP/1.1\r\nx: " + b"y" * 300_000,
    "endless path": b"POST /" + b"y" * 300_000,
    "many headers": b"POST /v1/completions HTTP/1.1\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
async def test_invalid_http(start_engine, start_gateway, raw):
    engine = await start_engine()
    front = await start_gateway(engine)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    try:
        writer.write(raw)
        await writer.drain()
        async with asyncio.timeout(10):
            first = await reader.readline()
        assert first.startswith(
            tuple(b"HTTP/1.1 %d" % status for status in (400, 404, 415, 431, 501))
        )
    except ConnectionError:
        pass  # refused while it still sent: closed with its bytes unread
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert engine.requests == []
    assert (await front.ask(stream=False))[0] == 200


async def test_too_large_content_length_is_refused_before_the_body(start_gateway):
    front = await start_gateway()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(POST + b"content-length: 99999999999\r\n\r\n")

    first = await reader.readline()

    assert first.startswith(b"HTTP/1.1 413")
    writer.close()
    await writer.wait_closed()


async def test_missing_body_is_a_408(start_gateway):
    front = await start_gateway(request_timeout_s=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(POST + b"content-length: 10\r\n\r\n{")

    answer = await reader.read()  # to its end: the connection is closed

    assert answer.startswith(b"HTTP/1.1 408")
    writer.close()
    await writer.wait_closed()
