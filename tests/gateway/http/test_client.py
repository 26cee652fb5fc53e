"""Reading a client's request and writing the response, without sockets."""

import asyncio
import json

import pytest

from penstock.gateway.apis.errors import RequestError
from penstock.gateway.http.client import (
    ClientDisconnected,
    ClientResponse,
    checked_headers,
    read_body,
)
from penstock.gateway.http.response_pieces import BODY_FOLLOWS, COUNTS_FOR_SERVICE
from penstock.gateway.limits.request_allocation import RequestAllocation, RequestLimits

COMPRESSED = "the body must not be compressed: send it without the header content-encoding"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], {}),
        ([(b"x", b"1"), (b"y", b"2")], {b"x": b"1", b"y": b"2"}),
        ([(b"x", b"1"), (b"y", b"2"), (b"x", b"3")], {b"x": b"1, 3", b"y": b"2"}),
        ([(b"content-type", b"Application/JSON ; charset=utf-8")], None),
        ([(b"content-encoding", b"identity")], None),
        ([(b"content-encoding", b" Identity")], None),
        ([(b"origin", b"https://a.example"), (b"content-type", b"application/json")], None),
        ([(b"content-type", b"application/x-www-form-urlencoded")], None),
    ],
)
def test_headers_by_name(headers, expected):
    expected = dict(headers) if expected is None else expected
    assert checked_headers(headers, limit_bytes=1000) == expected


def test_header_limit_can_be_reached_exactly():
    headers = [(b"x", b"1234"), (b"yz", b"123")]
    assert checked_headers(headers, limit_bytes=10)
    with pytest.raises(RequestError) as refused:
        checked_headers(headers, limit_bytes=9)
    assert refused.value.status == 431
    assert refused.value.message == "the headers are larger than 9 bytes"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ((b"content-type", b"text/plain"), "the content type must be application/json"),
        ((b"content-type", b"multipart/form-data"), "the content type must be application/json"),
        (
            (b"content-encoding", b"gzip"),
            COMPRESSED,
        ),
    ],
)
def test_unsupported_body_types(header, message):
    with pytest.raises(RequestError) as refused:
        checked_headers([header], limit_bytes=1000)
    assert (refused.value.status, refused.value.message) == (415, message)


@pytest.mark.parametrize("kind", [None, b"", b"application/x-www-form-urlencoded"])
def test_browser_must_name_json(kind):
    """With another type a page of any origin can send the request, as a form does."""
    headers = [(b"origin", b"null")] + ([] if kind is None else [(b"content-type", kind)])
    with pytest.raises(RequestError) as refused:
        checked_headers(headers, limit_bytes=1000)
    assert (refused.value.status, refused.value.message) == (
        415,
        "a browser must send the content type application/json: any web page can send a form",
    )


def receiving(*messages):
    """ASGI `receive` of a client that sends these messages and then nothing."""
    left = list(messages)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def part(body, *, more):
    return {"type": "http.request", "body": body, "more_body": more}


async def read(*messages, declared=b"", limit_bytes=10, limits=None, timeout_s=9.0):
    allocation = RequestAllocation(limits or RequestLimits(18, 1000), "10.0.0.1")
    return await read_body(
        receiving(*messages), declared, allocation, limit_bytes=limit_bytes, timeout_s=timeout_s
    )


async def test_body_in_parts():
    limits = RequestLimits(18, 1000)
    parts = part(b"12345", more=True), part(b"678", more=True), part(b"90", more=False)
    assert await read(*parts, limits=limits) == b"1234567890"
    assert limits.body_bytes.held == 10


async def test_message_without_a_body_is_the_end():
    assert await read({"type": "http.request"}) == b""
    assert await read(part(b"1", more=True), {"type": "http.request"}) == b"1"


@pytest.mark.parametrize("declared", [b"11", b"99999999999999999999999999"])
async def test_too_large_content_length_is_a_413(declared):
    with pytest.raises(RequestError) as refused:
        await read(declared=declared)
    assert refused.value.status == 413
    assert refused.value.message == "the request body is larger than 10 bytes"


@pytest.mark.parametrize("declared", [b"10", b"", b"many", b"-5"])
async def test_body_that_grows_too_large_is_a_413(declared):
    parts = part(b"123456", more=True), part(b"78901", more=False)
    with pytest.raises(RequestError) as refused:
        await read(*parts, declared=declared)
    assert refused.value.status == 413
    assert await read(part(b"1234567890", more=False), declared=declared) == b"1234567890"


async def test_body_without_memory_is_a_503():
    with pytest.raises(RequestError) as refused:
        await read(part(b"123456", more=False), limits=RequestLimits(18, 5))
    assert refused.value.status == 503


async def test_disconnect_before_the_end_of_the_body():
    with pytest.raises(ClientDisconnected):
        await read(part(b"1", more=True), {"type": "http.disconnect"})


async def test_incomplete_body_is_a_408():
    with pytest.raises(RequestError) as refused:
        await read(part(b"1", more=True), timeout_s=0.02)
    assert refused.value.status == 408
    assert refused.value.message == "the request was not complete after 0.02 s"


@pytest.fixture
def logged():
    return []


@pytest.fixture
def make_reply(logged):
    def make(*, closing=False):
        async def send(message):
            logged.append(message)

        return ClientResponse(send, "id-1", closing=closing)

    return make


REQUEST_ID = (b"x-request-id", b"id-1")


async def test_response_in_parts(make_reply, logged):
    reply = make_reply()
    assert (reply.status, reply.is_started) == (499, False)
    await reply.start(201, [(b"x", b"y")])
    assert (reply.status, reply.is_started) == (201, True)
    await reply.send_chunk(b"a")
    await reply.finish()
    assert logged == [
        {
            "type": "http.response.start",
            "status": 201,
            "headers": [(b"x", b"y"), REQUEST_ID],
            COUNTS_FOR_SERVICE: True,
            BODY_FOLLOWS: False,
        },
        {"type": "http.response.body", "body": b"a", "more_body": True},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ]


@pytest.mark.parametrize("closing", [False, True])
async def test_complete_response(make_reply, logged, closing):
    await make_reply(closing=closing).send(200, [(b"x", b"y")], b"abc")
    close = [(b"connection", b"close")] if closing else []
    head, body = logged
    assert head["headers"] == [(b"x", b"y"), (b"content-length", b"3"), REQUEST_ID, *close]
    assert (body["body"], body["more_body"]) == (b"abc", False)


@pytest.mark.parametrize("is_request_read", [False, True])
@pytest.mark.parametrize("retry_after_s", [None, 0, 7])
async def test_error_response(make_reply, logged, is_request_read, retry_after_s):
    """The connection is kept only if the whole request was read."""
    reply = make_reply()
    reply.is_request_read = is_request_read
    await reply.send_error(
        RequestError(503, "no", param="p", code="c", retry_after_s=retry_after_s)
    )
    head, body = logged
    assert head["status"] == reply.status == 503
    assert not head[COUNTS_FOR_SERVICE]
    length = b"%d" % len(body["body"])
    after = [] if retry_after_s is None else [(b"retry-after", b"%d" % retry_after_s)]
    close = [] if is_request_read else [(b"connection", b"close")]
    kind = (b"content-type", b"application/json")
    assert head["headers"] == [kind, *after, (b"content-length", length), REQUEST_ID, *close]
    error = {"message": "no", "type": "unavailable_error", "param": "p", "code": "c"}
    assert json.loads(body["body"]) == {"error": error}


async def test_last_event_of_a_stream(make_reply, logged):
    await make_reply().finish_stream(b"data: x\n\n")
    assert logged == [{"type": "http.response.body", "body": b"data: x\n\n", "more_body": False}]


async def test_last_event_is_dropped_if_the_client_does_not_read(monkeypatch):
    monkeypatch.setattr("penstock.gateway.http.client.LAST_EVENT_TIMEOUT_S", 0.02)

    async def send(message):
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        await ClientResponse(send, "id-1", closing=False).finish_stream(b"data: x\n\n")


async def test_body_that_is_given_up_is_a_408():
    limits = RequestLimits(2, 1000)
    first = asyncio.create_task(read(part(b"1", more=True), limits=limits))
    await asyncio.sleep(0)
    assert await read(part(b"2", more=False), limits=limits) == b"2"
    with pytest.raises(RequestError) as refused:
        await first
    assert refused.value.status == 408
    assert refused.value.message == (
        "the request was too slow to arrive while others needed its room: send it again"
    )


async def test_body_whose_time_is_over_can_be_given_up_in_the_same_moment():
    """The request that needs its room is not the one that fails."""
    limits = RequestLimits(2, 1000)
    late = asyncio.create_task(read(part(b"1", more=True), limits=limits, timeout_s=0))
    await asyncio.sleep(0)  # it reads
    await asyncio.sleep(0)  # its limit is over; it has not been told yet
    assert await read(part(b"2", more=False), limits=limits) == b"2"
    with pytest.raises(RequestError) as refused:
        await late
    assert refused.value.status == 408
