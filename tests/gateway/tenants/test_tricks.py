"""Tricks of host, path, case, encoding and headers, sent over raw sockets: none gets past authorization."""

import asyncio
import json
from itertools import product

import pytest
from tests.support.gateway_callers import api_key, bearer, let_in, tenant

from penstock.core.routing.apis import APIS
from penstock.core.tenants.tenant import Access

RIGHT, OTHER = api_key(1), api_key(2)
BODY = b'{"model": "chat"}'
CHAT = b"/v1/chat/completions"
# Spellings of paths that something on the way could take for the route.
PATHS = [
    CHAT,
    b"//v1/chat/completions",
    b"/v1//chat/completions",
    b"/v1/chat/completions/",
    b"/V1/CHAT/COMPLETIONS",
    b"/v1/chat/completions?key=1",
    b"/v1/chat/completions#a",
    b"/v1/chat/completions;a=b",
    b"/v1/./chat/completions",
    b"/v1/x/../chat/completions",
    b"/../v1/chat/completions",
    b"/v1/chat%2fcompletions",
    b"/v1/chat/%63ompletions",
    b"/%76%31/chat/completions",
    b"/v1/chat/completions%00",
    b"/v1/chat/completions%0a",
    b"/v1/chat/completions%20",
    b"/v1\\chat\\completions",
    b"/v1/chat/completions%2f",
    b"/v1/models/../chat/completions",
    b"/v1/models/%2e%2e/chat/completions",
    b"/healthz/../v1/chat/completions",
    b"/%2e/v1/chat/completions",
    b"/v1/chat/completions%c0%af",
    b"/metrics",
    b"/readyz",
    b"/penstock/feed",
    b"http://localhost/v1/chat/completions",
    b"http://localhost:8082/v1/chat/completions",
    b"*",
]
# Headers that prove nothing.
HEADERS = [
    b"",
    b"Authorization: Bearer",
    b"Authorization: Bearer ",
    b"Authorization: bearer null",
    b"Authorization: Basic cHNrOnBzaw==",
    b"Authorization: Negotiate x",
    b"Authorization:",
    b"Authorization: Bearer psk_aaaaaaaaaaaa_" + b"A" * 43,
    b"Authorization: Bearer psk_" + b"a" * 5000,
    b"Authorization: Bearer %s\x0b" % RIGHT.text.encode(),
    b"Authorization: Bearer,%s" % RIGHT.text.encode(),
    b"Authorization: %s" % RIGHT.text.encode(),
    b"Authorization: Bearer %s" % RIGHT.text.upper().encode(),
    b"Authorization: Bearer %s" % RIGHT.text[:-1].encode(),
    b"Authorization: Bearer %sA" % RIGHT.text.encode(),
    b"Authorization: Bearer %s %s" % (RIGHT.text.encode(), RIGHT.text.encode()),
    b"Authorization: Bearer psk_%s_" % RIGHT.id.encode(),
    b"Authorization: Bearer \xff\xfe",
    b"Api-Key: %s" % RIGHT.text.encode(),
    b"X_Api_Key: %s" % RIGHT.text.encode(),
    b"Proxy-Authorization: Bearer %s" % RIGHT.text.encode(),
    b"X-Forwarded-Authorization: Bearer %s" % RIGHT.text.encode(),
    b"Cookie: authorization=%s" % RIGHT.text.encode(),
    b"X-Api-Key: psk_",
    b"X-Api-Key: Bearer %s" % RIGHT.text.encode(),
    b"X-Api-Key: %s,%s" % ((RIGHT.text.encode(),) * 2),
    b"X-Penstock-Tenant: right",
    b"X-Penstock-Caller: right",
    b"X-Tenant: right",
    b"X-Forwarded-User: right",
    b"X-Forwarded-For: 127.0.0.1",
    b"X-Real-Ip: 127.0.0.1",
    b"Forwarded: for=127.0.0.1",
    b"X-Original-Url: /healthz",
    b"X-Rewrite-Url: /healthz",
    b"X-Http-Method-Override: OPTIONS",
    b"Origin: http://localhost",
    b"Origin: null\r\nAccess-Control-Request-Method: POST",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Connection: Authorization\r\nAuthorization: Bearer x",
    b"Authorization: Bearer x\r\nX-Api-Key: %s" % RIGHT.text.encode(),
    b"X-Api-Key: %s\r\nAuthorization: Bearer x" % RIGHT.text.encode(),
    b"Authorization: Bearer %s\r\nAuthorization: Bearer x" % RIGHT.text.encode(),
]
HOSTS = [b"localhost", b"127.0.0.1:8082", b"penstock-gateway", b"", b"a,b", b"evil.example"]
METHODS = [
    b"POST",
    b"GET",
    b"PUT",
    b"OPTIONS",
    b"HEAD",
    b"post",
    b"DELETE",
    b"PATCH",
    b"TRACE",
    b"CONNECT",
]
TRICKS = [
    *(("path", b"POST", path, HOSTS[0], b"") for path in PATHS),
    *(("header", b"POST", CHAT, HOSTS[0], header) for header in HEADERS),
    *(("header", b"GET", b"/v1/models", HOSTS[0], header) for header in HEADERS),
    *(("route", b"POST", api.path.encode(), HOSTS[0], HEADERS[7]) for api in APIS),
    *(("host", b"POST", path, host, b"") for host, path in product(HOSTS, PATHS[:5])),
    *(("method", method, path, HOSTS[0], b"") for method, path in product(METHODS, PATHS[:4])),
]
# Model names of a tenant that may use nothing of the namespace.
MODELS = [
    "chat",
    "default/chat",
    "DEFAULT/CHAT",
    "Chat",
    " chat",
    "chat ",
    "chat\n",
    "chat\x00",
    "./chat",
    "default//chat",
    "/default/chat",
    "elsewhere/../default/chat",
    "elsewhere/chat",
    "default%2fchat",
    "ch\u0430t",
    "chat\u200b",
    "default\\chat",
    "*",
    "",
    "default/*",
    "\uff43hat",
    "chat/",
    "default/chat/",
    "ch/at",
    "chat,chat",
]
BODIES = [
    *(json.dumps({"model": model}).encode() for model in MODELS),
    *(json.dumps({"model": model}, ensure_ascii=False).encode() for model in MODELS),
    b'{"model": "none", "model": "chat"}',
    b'{"model": "chat", "model": "none"}',
    b'{"\\u006dodel": "chat"}',
    b'{"model": "\\u0063hat"}',
    b'{"Model": "chat"}',
    b'{"model": ["chat"]}',
    b'{"model": {"$ref": "chat"}}',
    b'\xef\xbb\xbf{"model": "chat"}',
    b'[{"model": "chat"}]',
    b'{"model": "none"}{"model": "chat"}',
    b"model=chat",
]


@pytest.fixture
async def stand(start_gateway, start_engine):
    engine = await start_engine()
    front = await start_gateway(engine)
    let_in(
        front.gateway,
        tenant("right", Access("default")),
        tenant("other", Access("elsewhere")),
        keys={"right": RIGHT, "other": OTHER},
    )
    return front, engine


async def send(front, method, path, host, header, body=BODY):
    """The status line of the response to a raw request, and its body; empty if the connection was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = b"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n" % (
        method, path, host
    )  # fmt: skip
    lines = header + b"\r\n" if header else b""
    writer.write(head + lines + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    try:
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, rest


def test_there_are_enough_tricks():
    assert len(TRICKS) + len(BODIES) >= 200


async def test_nobody_gets_in_by_a_trick(stand):
    front, engine = stand
    got_in = []
    for trick in TRICKS:
        status, body = await send(front, *trick[1:])
        if not (status == 0 or 400 <= status < 500) or b'"chat"' in body:
            got_in.append((trick, status, body[:80]))
    assert got_in == []
    assert engine.requests == []
    assert (await send(front, b"POST", CHAT, HOSTS[0], b"X-Api-Key: " + RIGHT.text.encode()))[
        0
    ] == 200


async def test_no_spelling_of_a_model_gets_past_authorization(stand):
    front, engine = stand
    header = b"Authorization: " + bearer(OTHER)["Authorization"].encode()
    got_in = []
    for body in BODIES:
        status, _ = await send(front, b"POST", CHAT, HOSTS[0], header, body)
        if status not in (400, 404):
            got_in.append((body, status))
    assert got_in == []
    assert engine.requests == []


async def test_a_request_behind_another_is_authenticated_by_itself(stand):
    """Of two requests on one connection the second has no key."""
    front, engine = stand
    first = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % CHAT
    key = b"Authorization: Bearer %s\r\n" % RIGHT.text.encode()
    length = b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(first + key + length + first + b"Connection: close\r\n" + length)
    answer = await reader.read()
    writer.close()
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1 401") == 1
    assert len(engine.requests) == 1
