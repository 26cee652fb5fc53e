"""Headers that are forwarded to engines and to clients."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.routing.forwarded_client import parse_trusted_proxy
from penstock.core.routing.pick import Endpoint
from penstock.gateway.http.headers import (
    HOP_BY_HOP,
    NOT_FOR_CLIENTS,
    NOT_FOR_ENGINES,
    filter_headers,
    header_text,
    headers_for_client,
    preferred_wait_s,
)

BODY = b'{"model": "chat"}'


async def send(front, *lines: bytes, body: bytes = BODY) -> bytes:
    """Send a request with these header lines. Returns the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    length = b"content-length: %d\r\n\r\n" % len(body)
    writer.write(head + b"".join(line + b"\r\n" for line in lines) + length + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_headers_of_proxies_reach_the_engine_as_they_came(start_engine, start_gateway):
    """The gateway adds no address, trusted proxy or not."""
    engine = await start_engine()
    trusted = (parse_trusted_proxy("127.0.0.1"),)
    front = await start_gateway(engine, trusted_proxies=trusted)
    sent = {
        "x-forwarded-for": "203.0.113.5, 198.51.100.9", "forwarded": "for=203.0.113.5",
        "x-real-ip": "203.0.113.5", "x-forwarded-proto": "https", "x-forwarded-host": "a.example",
    }  # fmt: skip
    await send(front, *(f"{name}: {value}".encode() for name, value in sent.items()))
    (request,) = engine.requests
    assert {name: request.headers[name] for name in sent} == sent


@pytest.fixture
async def raw_engine(start_gateway, make_service):
    """A gateway, and the heads that its engine received, as bytes."""
    heads: list[bytes] = []

    async def connected(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    front = await start_gateway(synced=False)
    service = make_service()
    port = server.sockets[0].getsockname()[1]
    front.publish(replace(service, endpoints=(Endpoint("default/raw", f"127.0.0.1:{port}", "r1"),)))
    yield front, heads
    server.close()
    await server.wait_closed()


async def test_repeated_header_is_forwarded_each_time(raw_engine):
    front, heads = raw_engine
    assert b"200 OK" in await send(front, b"x-tag: one", b"x-tag: two")
    lines = [line for line in heads[0].split(b"\r\n") if line.lower().startswith(b"x-tag")]
    assert [line.partition(b": ")[2] for line in lines] == [b"one", b"two"]


async def test_utf_8_value_is_forwarded_unchanged(raw_engine):
    front, heads = raw_engine
    assert b"200 OK" in await send(front, "x-city: São Paulo".encode())
    assert "São Paulo".encode() in heads[0]


async def test_a_repeated_content_type_is_not_the_last_one(raw_engine):
    front, heads = raw_engine
    types = b"content-type: text/plain", b"content-type: application/json"
    assert b" 415 " in (await send(front, *types)).split(b"\r\n")[0]
    assert heads == []


@pytest.mark.parametrize("name", [b"x-penstock-tpot-s", b"X-Penstock-Anything"])
async def test_internal_headers_of_a_client_are_dropped(raw_engine, name):
    front, heads = raw_engine
    assert b"200 OK" in await send(front, name + b": 1")
    assert b"penstock" not in heads[0].lower()


async def test_request_id_with_a_colon_is_forwarded(raw_engine):
    front, heads = raw_engine
    answer = await send(front, b"x-request-id: root:1-5f")
    assert b"x-request-id: root:1-5f" in answer
    assert b"x-request-id: root:1-5f" in heads[0].lower()


def test_headers_to_pass_on():
    headers = [
        (b"X-Kept", b"1"), (b"x-kept", b"2"), (b"Connection", b"close, X-Named ,x-other"),
        (b"connection", b"x-third"), (b"x-named", b"3"), (b"X-Other", b"4"), (b"x-third", b"5"),
        (b"X-Penstock-Any", b"6"), (b"x-penstocks", b"7"), (b"Dropped", b"8"),
        (b"x-value", b"x-named"),
    ]  # fmt: skip
    assert filter_headers(headers, frozenset({b"connection", b"dropped"})) == [
        (b"x-kept", b"1"), (b"x-kept", b"2"), (b"x-penstocks", b"7"), (b"x-value", b"x-named"),
    ]  # fmt: skip


@pytest.mark.parametrize("dropped", [NOT_FOR_CLIENTS, NOT_FOR_ENGINES])
def test_hop_by_hop_headers_are_not_passed_on(dropped):
    assert filter_headers([(name, b"x") for name in sorted(HOP_BY_HOP)], dropped) == []


@pytest.mark.parametrize(
    ("value", "text"), [(b"abc", "abc"), ("São".encode(), "São"), (b"\xe9", "é")]
)
def test_header_text(value, text):
    assert header_text(value) == text


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        (b"wait=10", 10.0), (b"respond-async, Wait = 10", 10.0), (b'wait="10"; x=1', 10.0), (b"", None),
        (b"wait", None), (b"wait=-1", None), (b"wait=1.5", None), (b"await=10", None),
        (b"wait=10000000000", None),
    ],
)  # fmt: skip
def test_what_a_client_is_willing_to_wait(prefer, wait_s):
    assert preferred_wait_s(prefer) == wait_s


def test_control_characters_of_engines_are_spaces_for_clients():
    """h11, which writes the response, raises an error for a vertical tab."""
    values = [(b"x-a", b"a\x0bb\x00\x7f"), (b"x-b", b"a\tb\xff")]
    assert headers_for_client(values) == [(b"x-a", b"a b"), (b"x-b", b"a\tb\xff")]


@pytest.mark.parametrize("value", [b"\x0b", b"a\x0cb", b"\x01"])
async def test_response_with_a_control_character_in_a_header_is_passed_on(
    start_engine, start_gateway, value
):
    async def behave(request):
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-a: " + value
        await request.send(head + b"\r\ncontent-length: 2\r\n\r\n{}")

    front = await start_gateway(await start_engine(behave))
    assert await front.ask(stream=False) == (200, b"{}")


@pytest.mark.parametrize("code", [*range(1, 9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
async def test_control_character_in_a_header_of_a_client_is_a_400(
    start_gateway, make_service, code
):
    """No engine is charged for it: it never gets the request."""
    front = await start_gateway()
    front.publish(make_service())
    status = (await send(front, b"x-a: a" + bytes([code]) + b"b")).split(b"\r\n")[0]
    assert status == b"HTTP/1.1 400 Bad Request"


@pytest.mark.parametrize("code", [0x09, *range(0x20, 0x7F, 19), *range(0x80, 0x100, 13)])
async def test_other_characters_of_a_client_reach_engines(raw_engine, code):
    front, heads = raw_engine
    answer = await send(front, b"x-a: a" + bytes([code]) + b"b")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    sent = bytes([code]).decode("latin-1").encode()
    assert b"x-a: a" + sent + b"b\r\n" in heads[0]
