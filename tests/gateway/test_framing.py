"""HTTP/1.1 framing errors that the gateway refuses, with their messages."""

import asyncio
import json

import h11
import pytest

from penstock.gateway.http_protocol import FREE_CHUNKS, MIN_CHUNK_BYTES, Framing

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(num_bytes):
    return b"%x\r\n%s\r\n" % (num_bytes, b"y" * num_bytes)


def events(framing):
    """All events up to the end, or up to the first error."""
    found = []
    while not found or found[-1] not in (h11.NEED_DATA, h11.PAUSED):
        found.append(framing.next_event())
        if type(found[-1]) is h11.EndOfMessage:
            break
    return found


def answer(framing):
    framing.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
    framing.send(h11.EndOfMessage())
    framing.start_next_cycle()


@pytest.mark.parametrize(
    ("sizes", "is_refused"),
    [
        # FREE_CHUNKS, and one more for every MIN_CHUNK_BYTES received, the last chunk's included.
        ([1] * (FREE_CHUNKS + 3), False),
        ([1] * (FREE_CHUNKS + 4), True),
        ([1] * (FREE_CHUNKS + 3) + [MIN_CHUNK_BYTES], False),
        ([MIN_CHUNK_BYTES] * 2 * FREE_CHUNKS, False),
        ([MIN_CHUNK_BYTES - 1] * FREE_CHUNKS, False),
    ],
)
def test_how_many_chunks_a_body_may_have(sizes, is_refused):
    framing = Framing(1000)
    framing.receive_data(CHUNKED + b"".join(map(chunk, sizes)) + END)
    if not is_refused:
        assert len(events(framing)) == 1 + len(sizes) + 1
        assert framing.error is None
        return
    with pytest.raises(h11.RemoteProtocolError, match="chunks of the body are too small"):
        events(framing)
    assert framing.error is not None


def test_each_body_has_its_own_chunks():
    framing = Framing(1000)
    for _ in range(3):
        framing.receive_data(CHUNKED + chunk(1) * FREE_CHUNKS + END)
        assert len(events(framing)) == 1 + FREE_CHUNKS + 1
        answer(framing)


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
def test_the_length_of_a_body_is_told_in_one_way(head, is_refused):
    framing = Framing(1000)
    framing.receive_data(head + END)
    if is_refused:
        with pytest.raises(h11.RemoteProtocolError, match="length of the body is ambiguous"):
            framing.next_event()
    else:
        assert type(framing.next_event()) is h11.Request


@pytest.mark.parametrize("more", [0, 1])
def test_the_bound_of_a_head(more):
    framing = Framing(1000)
    framing.receive_data(HEAD.ljust(1000 + more, b"y"))
    if not more:
        assert framing.next_event() is h11.NEED_DATA
        return
    with pytest.raises(h11.RemoteProtocolError):
        framing.next_event()
    assert framing.error is not None
    assert framing.error.error_status_hint == 431


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
            "invalid HTTP request: illegal request line: bytearray(b'hello')",
        ),
        (
            HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            b"HTTP/1.1 400 Bad Request",
            "invalid HTTP request: the length of the body is ambiguous",
        ),
        (
            HEAD + b"x: " + b"y" * 3000,
            b"HTTP/1.1 431 Request Header Fields Too Large",
            "invalid HTTP request: Receive buffer too long",
        ),
    ],
)
async def test_a_request_that_is_not_http_is_told_why(start_gateway, data, first, message):
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


async def test_why_is_told_in_few_words(start_gateway):
    front = await start_gateway()
    _, _, body = (await raw_answer(front, b"z" * 1000 + b"\r\n\r\n")).partition(b"\r\n\r\n")
    assert len(json.loads(body)["error"]["message"]) == 200


async def test_a_body_that_goes_wrong_ends_its_request(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    answer = await raw_answer(front, CHUNKED.replace(b" / ", b" /v1/completions ") + b"zz\r\n")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request")
    assert answer.count(b"HTTP/1.1") == 1
    await front.idle()
    assert await front.metric("penstock_gateway_disconnects_total", phase="receiving") == 1
    assert engine.requests == []
