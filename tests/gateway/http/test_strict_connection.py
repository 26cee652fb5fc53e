"""HTTP/1.1 framing errors that the gateway refuses, with their messages."""

import asyncio
import json

import h11
import pytest

from penstock.gateway.apis.errors import error_body
from penstock.gateway.http.strict_connection import (
    FREE_CHUNKS,
    MAX_HEADER_LINES,
    MIN_CHUNK_BYTES,
    StrictConnection,
)

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(num_bytes):
    return b"%x\r\n%s\r\n" % (num_bytes, b"y" * num_bytes)


def events(connection):
    """Return all events up to the end, or raise the first error."""
    received = []
    while not received or received[-1] not in (h11.NEED_DATA, h11.PAUSED):
        received.append(connection.next_event())
        if type(received[-1]) is h11.EndOfMessage:
            break
    return received


def answer(connection):
    connection.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
    connection.send(h11.EndOfMessage())
    connection.start_next_cycle()


@pytest.mark.parametrize(
    ("sizes", "is_refused"),
    [
        # FREE_CHUNKS, and one more for every MIN_CHUNK_BYTES received so far.
        ([1] * (FREE_CHUNKS + 3), False),
        ([1] * (FREE_CHUNKS + 4), True),
        ([1] * (FREE_CHUNKS + 3) + [MIN_CHUNK_BYTES], False),
        ([MIN_CHUNK_BYTES] * 2 * FREE_CHUNKS, False),
        ([MIN_CHUNK_BYTES - 1] * FREE_CHUNKS, False),
    ],
)
def test_number_of_chunks_is_bounded(sizes, is_refused):
    connection = StrictConnection(1000)
    connection.receive_data(CHUNKED + b"".join(map(chunk, sizes)) + END)
    if not is_refused:
        assert len(events(connection)) == 1 + len(sizes) + 1
        assert connection.error is None
        return
    with pytest.raises(h11.RemoteProtocolError, match="chunks of the body are too small"):
        events(connection)
    assert connection.error is not None


def test_chunks_are_counted_for_each_body():
    connection = StrictConnection(1000)
    for _ in range(3):
        connection.receive_data(CHUNKED + chunk(1) * FREE_CHUNKS + END)
        assert len(events(connection)) == 1 + FREE_CHUNKS + 1
        answer(connection)


@pytest.mark.parametrize(
    ("head", "is_refused"),
    [
        (HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n", True),
        (CHUNKED, False),
        (CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0"), True),
        (HEAD + b"content-length: 0\r\n\r\n", False),
        (HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"content-length: 0\r\n\r\n", False),
    ],
)
def test_ambiguous_body_length_is_refused(head, is_refused):
    connection = StrictConnection(1000)
    connection.receive_data(head + END)
    if is_refused:
        with pytest.raises(h11.RemoteProtocolError, match="length of the body is ambiguous"):
            connection.next_event()
    else:
        assert type(connection.next_event()) is h11.Request


@pytest.mark.parametrize("more", [0, 1])
def test_size_of_a_head_is_bounded(more):
    connection = StrictConnection(1000)
    connection.receive_data(HEAD.ljust(1000 + more, b"y"))
    if not more:
        assert connection.next_event() is h11.NEED_DATA
        return
    with pytest.raises(h11.RemoteProtocolError):
        connection.next_event()
    assert connection.error is not None
    assert connection.error.error_status_hint == 431


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        # The first header of all is `host`; the lines of a body do not count.
        (HEAD, b"content-length: 400\r\n\r\n" + b"\n" * 400),
        # A head has the request line, which trailers do not have.
        (CHUNKED + b"0\r\nx:\r\nx:\r\nx:\r\n", b"\r\n"),
    ],
)
def test_number_of_headers_and_trailers_is_bounded(start, end, more):
    connection = StrictConnection(1000)
    connection.receive_data(start + b"x:\r\n" * (MAX_HEADER_LINES - 2 + more) + end)
    if not more:
        assert type(events(connection)[-1]) is h11.EndOfMessage
        return
    with pytest.raises(h11.RemoteProtocolError, match="more than 128 header lines"):
        events(connection)
    assert connection.error is not None
    assert connection.error.error_status_hint == 431


async def raw_answer(front, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(data)
    got = await reader.read()
    writer.close()
    await writer.wait_closed()
    return got


@pytest.mark.parametrize(
    ("data", "first", "message"),
    [
        (
            b"hello\r\n\r\n",
            b"HTTP/1.1 400 Bad Request",
            "invalid HTTP request: illegal request line",
        ),
        (
            HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            b"HTTP/1.1 400 Bad Request",
            "invalid HTTP request: the length of the body is ambiguous",
        ),
        (
            HEAD + b"x:\r\n" * 200 + b"\r\n",
            b"HTTP/1.1 431 Request Header Fields Too Large",
            "invalid HTTP request: more than 128 header lines",
        ),
        (
            HEAD + b"x: " + b"y" * 3000,
            b"HTTP/1.1 431 Request Header Fields Too Large",
            "invalid HTTP request: path and headers have more than 2000 bytes",
        ),
    ],
)
async def test_invalid_http_gets_an_error_with_the_reason(start_gateway, data, first, message):
    front = await start_gateway(max_header_bytes=2000)
    head, _, body = (await raw_answer(front, data)).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        first,
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]
    status = int(first.split()[1])
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
    assert json.loads(body) == {"error": error}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"Authorization: Bearer psk_secret\x00", "illegal header line: Authorization"),
        (b"x-api-key: 'psk_secret\"\x00", "illegal header line: x-api-key"),
        (b"x-api-key: psk_\npsk_secret", "illegal header line"),
        (b"psk_secret : 1", "illegal header line"),
    ],
)
@pytest.mark.parametrize(
    ("path", "form"), [(b"/v1/completions", "OpenAI"), (b"/v1/messages", "Anthropic")]
)
async def test_an_error_repeats_no_key(start_gateway, caplog, line, message, path, form):
    front = await start_gateway()
    data = b"POST %s?key=psk_secret HTTP/1.1\r\nhost: x\r\n%s\r\n\r\n" % (path, line)
    _, _, body = (await raw_answer(front, data)).partition(b"\r\n\r\n")
    told = f"invalid HTTP request: {message}"
    assert json.loads(body) == json.loads(error_body(400, told, form=form))
    assert "secret" not in caplog.text + "".join(str(vars(each)) for each in caplog.records)


async def test_invalid_chunk_ends_the_request(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    answer = await raw_answer(front, CHUNKED.replace(b" / ", b" /v1/completions ") + b"zz\r\n")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request")
    assert answer.count(b"HTTP/1.1") == 1
    await front.idle()
    assert await front.metric("penstock_gateway_disconnects_total", phase="receiving") == 1
    assert engine.requests == []


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/models?a=b", b"/v1/models?a=b"),
        (b"http://host/v1/models?a=http://b", b"/v1/models?a=http://b"),
        (b"HTTPS://user@host:8080/", b"/"),
        (b"http://[::1]:80", b"/"),
        (b"http://host?a=b", b"/?a=b"),
        (b"//host/v1", b"//host/v1"),
        (b"*", b"*"),
        (b"host:443", b"host:443"),
    ],
)
def test_server_in_a_target_is_left_out(target, path):
    connection = StrictConnection(1000)
    connection.receive_data(b"GET %s HTTP/1.1\r\nhost: x\r\nx-a: 1\r\n\r\n" % target)
    request = connection.next_event()
    assert (request.method, request.target, request.http_version) == (b"GET", path, b"1.1")
    assert list(request.headers) == [(b"host", b"x"), (b"x-a", b"1")]
    assert type(connection.next_event()) is h11.EndOfMessage
