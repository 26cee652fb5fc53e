"""Requests of tenants that a gateway has to refuse: wrong keys, bodies, models, limits and paths."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.gateway_callers import api_key, tenant

from penstock.core.routing.apis import error_form
from penstock.core.tenants.tenant import Access, RequestLimits, Tenant, UsageLimit

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
FORMS = (CHAT, MESSAGES, RESPONSES)
NAMES = ("caller", "neighbor", "other", "spent", "suspended", "chatting")
CALLER, NEIGHBOR, OTHER, SPENT, SUSPENDED, CHATTING, EXPIRED, ORPHAN, UNKNOWN = (
    api_key(number) for number in range(1, 10)
)
KEYS = dict(zip(NAMES, (CALLER, NEIGHBOR, OTHER, SPENT, SUSPENDED, CHATTING), strict=True)) | {
    "nobody": ORPHAN  # a Secret that no Tenant names
}
EXPIRED_KEYS = {"caller": EXPIRED}
MODEL, HIDDEN_MODEL = "chat", "secret"
MAX_BODY_BYTES = 100_000
TENANTS: tuple[Tenant, ...] = (
    tenant(
        "caller",
        Access("default"),
        request=RequestLimits(body_bytes=MAX_BODY_BYTES, prompt_tokens=1000, output_tokens=500),
    ),
    tenant("neighbor", Access("default")),
    tenant("other", Access("elsewhere")),
    tenant("spent", Access("default"), limits=(UsageLimit("none", "Requests", 0, "Month"),)),
    tenant("suspended", Access("default"), is_suspended=True),
    tenant("chatting", Access("default", frozenset({MODEL}), frozenset({CHAT}))),
)
GOOD = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
GOOD_BODY = json.dumps(GOOD).encode()


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request as bytes. statuses: allowed. form: of the error. says: part of the error's message."""

    kind: str
    name: str
    data: bytes
    statuses: frozenset[int]
    form: str
    says: str


def bad_requests() -> list[BadRequest]:
    """Return all, which are the same in each call."""
    return [
        *_wrong_keys(), *_wrong_headers(), *_two_credentials(), *_large_heads(), *_bad_bodies(),
        *_models(), *_limits(), *_paths(), *_framing(),
    ]  # fmt: skip


def _request(
    path: str,
    body: bytes,
    *lines: bytes,
    method: bytes = b"POST",
    type_: bytes = b"application/json",
) -> bytes:
    head = [
        b"%s %s HTTP/1.1" % (method, path.encode()), b"Host: gateway", b"Connection: close",
        b"Content-Type: " + type_, *lines, b"Content-Length: %d" % len(body),
    ]  # fmt: skip
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def _key(text: str | bytes) -> bytes:
    return b"Authorization: Bearer " + (text if isinstance(text, bytes) else text.encode())


def _bad(kind: str, name: str, data: bytes, path: str, says: str, *statuses: int) -> BadRequest:
    return BadRequest(kind, name, data, frozenset(statuses), error_form(path), says)


def _wrong_keys() -> Iterator[BadRequest]:
    right = CALLER.text
    keys: dict[str, str | bytes] = {
        "of no Secret": UNKNOWN.text,
        "expired": EXPIRED.text,
        "of a Secret without a Tenant": ORPHAN.text,
        "with another's secret": f"psk_{CALLER.id}_{OTHER.secret}",
        "cut off": right[:-1],
        "with one character more": right + "A",
        "in upper case": right.upper(),
        "twice": f"{right} {right}",
        "with a comma": f"{right},",
        "in quotes": f'"{right}"',
        "in angle brackets": f"<{right}>",
        "with the scheme twice": f"Bearer {right}",
        "prefix only": "psk_",
        "id only": f"psk_{CALLER.id}_",
        "of OpenAI": "sk-proj-" + "a" * 48,
        "a placeholder": "${API_KEY}",
        "null": "null",
        "empty": "",
        "of 5 KB": "psk_" + "a" * 5000,
        "with an accent": f"{right[:-1]}é".encode(),
        "in Latin-1": b"psk_\xe9\xff",
        "with an emoji": "psk_\N{KEY}".encode(),
        "dots": "...",
    }  # fmt: skip
    tokens: dict[str, str | bytes] = {
        "unsigned": "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4IiwiZXhwIjo5OTk5OTk5OTk5fQ.",
        "of no issuer": "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJ4In0.AAAA",
        "of 30 KB": "a" * 30_000,
    }
    for path in FORMS:
        body = GOOD_BODY
        for says, values in (("API key", keys), ("token", tokens)):
            for name, value in values.items():
                data = _request(path, body, _key(value))
                yield _bad(f"wrong {says}", name, data, path, says, 401)
        data = _request(path, body, _key(SUSPENDED.text))
        yield _bad("wrong API key", "of a suspended tenant", data, path, "suspended", 403)


def _wrong_headers() -> Iterator[BadRequest]:
    key, pair = CALLER.text, base64.b64encode(f"caller:{CALLER.text}".encode()).decode()
    lines = {
        "none": "X-Nothing: 1",
        "api-key": f"api-key: {key}",
        "x-goog-api-key": f"x-goog-api-key: {key}",
        "subscription key": f"Ocp-Apim-Subscription-Key: {key}",
        "proxy": f"Proxy-Authorization: Bearer {key}",
        "cookie": f"Cookie: api_key={key}",
        "no scheme": f"Authorization: {key}",
        "Basic": f"Authorization: Basic {pair}",
        "Token": f"Authorization: Token {key}",
        "ApiKey": f"Authorization: ApiKey {key}",
        "colon": f"Authorization: Bearer: {key}",
        "scheme in x-api-key": f"x-api-key: Bearer {key}",
        "internal": "X-Penstock-Tenant: caller",
        "forwarded": "X-Forwarded-User: caller",
    }
    for path in (CHAT, MESSAGES):
        for name, line in lines.items():
            data = _request(path, GOOD_BODY, line.encode())
            yield _bad("wrong header", name, data, path, "Authorization: Bearer KEY", 401)
        data = _request(f"{path}?key={key}", GOOD_BODY)
        yield _bad("wrong header", "query", data, path, "Authorization: Bearer KEY", 401)


def _two_credentials() -> Iterator[BadRequest]:
    right, wrong = CALLER.text, OTHER.text
    pairs = {
        "both headers": (_key(right), b"x-api-key: " + wrong.encode()),
        "both headers, the other way": (b"x-api-key: " + right.encode(), _key(wrong)),
        "authorization twice": (_key(right), _key(wrong)),
        "x-api-key twice": (b"x-api-key: " + right.encode(), b"x-api-key: " + wrong.encode()),
        "a token and a key": (_key("a.b.c"), b"x-api-key: " + right.encode()),
        "Basic and a key": (b"Authorization: Basic eDp5", b"x-api-key: " + right.encode()),
    }
    for path in (CHAT, MESSAGES):
        for name, lines in pairs.items():
            data = _request(path, GOOD_BODY, *lines)
            yield _bad("two credentials", name, data, path, "different", 400)


def _large_heads() -> Iterator[BadRequest]:
    key, body = _key(CALLER.text), GOOD_BODY
    many = [b"x-%d: y" % number for number in range(200)]
    heads: dict[str, tuple[bytes, ...]] = {
        "200 headers": (key, *many),
        "one name 200 times": (key, *([b"x: y"] * 200)),
        "64 KiB in one": (key, b"x: " + b"y" * 65_536),
        "64 KiB in many": (key, *(line + b"y" * 700 for line in many[:100])),
        "a name of 40 KB": (key, b"x" * 40_000 + b": y"),
        "cookies of 40 KB": (key, b"Cookie: " + b"a=b; " * 8000),
    }
    for path in (CHAT, MESSAGES):
        for name, lines in heads.items():
            yield _bad("large head", name, _request(path, body, *lines), path, "header", 431)
    data = _request("/" + "y" * 80_000, body, key)
    yield _bad("large head", "a path of 80 KB", data, "/", "path", 431)


def _bad_bodies() -> Iterator[BadRequest]:
    bodies: dict[str, bytes] = {
        "empty": b"", "a word": b"model", "null": b"null", "a list": b'["chat"]', "a string": b'"chat"',
        "cut off": b'{"model": "chat", "messages": [', "a comma": b'{"model": "chat",}',
        "single quotes": b"{'model': 'chat'}", "two": b'{"model": "chat"}{"model": "chat"}',
        "a comment": b'{"model": "chat" /* no */}', "not UTF-8": b'{"model": "chat", "user": "\xff"}',
        "UTF-16": '{"model": "chat"}'.encode("utf-16"), "a form": b"model=chat&messages=hi",
        "NUL": b'{"model": "chat\x00"}', "half a surrogate": b'{"model": "\\ud800"}',
        "no model": b"{}", "a number": b'{"model": 7}', "an empty name": b'{"model": ""}',
        "an object": b'{"model": {}}', "100,000 brackets": b"[" * 90_000,
        "a deep object": b'{"a":' * 15_000, "NaN": b'{"model": NaN}',
    }  # fmt: skip
    for path in (CHAT, MESSAGES):
        for name, body in bodies.items():
            says = "model" if b"model" in body and b"}" in body[:2] else ""
            data = _request(path, body, _key(CALLER.text))
            yield _bad("bad body", name, data, path, says, 400)
    for name, type_ in {
        "text": b"text/plain",
        "a form": b"multipart/form-data; boundary=x",
    }.items():
        data = _request(CHAT, GOOD_BODY, _key(CALLER.text), type_=type_)
        yield _bad("bad body", f"of the type of {name}", data, CHAT, "application/json", 415)
    data = _request(CHAT, GOOD_BODY, _key(CALLER.text), b"Content-Encoding: gzip")
    yield _bad("bad body", "compressed", data, CHAT, "compressed", 415)


def _models() -> Iterator[BadRequest]:
    names = (
        HIDDEN_MODEL, f"elsewhere/{HIDDEN_MODEL}", f"default/{HIDDEN_MODEL}",
        f"default/../elsewhere/{HIDDEN_MODEL}", "CHAT", " chat", "chat ", "chat\n", "default//chat", "/chat",
        "chat/", "*", "ch\u0430t", "gpt-4o", "x" * 50_000,
    )  # fmt: skip
    for path in (CHAT, MESSAGES):
        for name in names:
            body = json.dumps(GOOD | {"model": name}).encode()
            data = _request(path, body, _key(CALLER.text))
            yield _bad("model", ascii(name[:40]), data, path, "does not exist", 404)
    data = _request(CHAT, GOOD_BODY, _key(OTHER.text))
    yield _bad("model", "of another tenant", data, CHAT, "does not exist", 404)
    data = _request(f"/v1/models/{HIDDEN_MODEL}", b"", _key(CALLER.text), method=b"GET")
    yield _bad("model", "read by name", data, CHAT, "does not exist", 404)


def _limits() -> Iterator[BadRequest]:
    long = [{"role": "user", "content": "word " * 4000}]
    cases: dict[str, tuple[dict[str, object], str, int]] = {
        "body": ({"user": "x" * MAX_BODY_BYTES}, "bytes", 413),
        "prompt": ({"messages": long}, "1000", 400),
        "output": ({"max_tokens": 501}, "500", 400),
        "a huge output": ({"max_tokens": 10**30}, "500", 400),
    }
    for path in (CHAT, MESSAGES):
        for name, (fields, says, status) in cases.items():
            data = _request(path, json.dumps(GOOD | fields).encode(), _key(CALLER.text))
            yield _bad("limit", name, data, path, says, status)
        data = _request(path, GOOD_BODY, _key(SPENT.text))
        yield _bad("limit", "spent", data, path, "limit", 400, 429)
    for name, fields in {"choices": {"n": 501}, "all choices": {"n": 200}}.items():
        data = _request(CHAT, json.dumps(GOOD | fields).encode(), _key(CALLER.text))
        yield _bad("limit", name, data, CHAT, "500", 400)
    for path in (MESSAGES, RESPONSES, "/v1/embeddings"):
        data = _request(path, GOOD_BODY, _key(CHATTING.text))
        yield _bad("limit", "route", data, path, "no access", 403)


def _paths() -> Iterator[BadRequest]:
    paths = (
        "/", "/v1", "/v1/", "/v2/chat/completions", "/V1/CHAT/COMPLETIONS", "//v1/chat/completions",
        "/v1//chat/completions", "/v1/chat/completions/", "/v1/./chat/completions", "/metrics", "/readyz",
        "/v1/x/../chat/completions", "/v1/chat/completions;a=b", "/v1/chat/completions%00",
        "/v1/chat/completions%0a",
        "/healthz", "/docs", "/openapi.json", "/v1/load_lora_adapter", "/penstock/feed", "/.env",
        "/v1/files", "/v1/batches", "/v1/audio/speech", "/v1/images/generations", "/v1/chat/../../etc/passwd",
        "/v1/chat/completions%c0%af", "/" + "y" * 10_000,
    )  # fmt: skip
    for path in paths:
        data = _request(path, GOOD_BODY, _key(CALLER.text))
        yield _bad("path", path[:60], data, path, "", 404)
    for method in (b"GET", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"post", b"BREW"):
        for path in (CHAT, MESSAGES):
            data = _request(path, b"", _key(CALLER.text), method=method)
            yield _bad("path", f"{method.decode()} {path}", data, path, "POST", 405)


def _framing() -> Iterator[BadRequest]:
    key = _key(CALLER.text)
    start = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n".encode() + key + b"\r\n"
    requests = {
        "two lengths": start + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "a negative length": start + b"Content-Length: -1\r\n\r\n",
        "a length in words": start + b"Content-Length: two\r\n\r\n",
        "a length and chunks": start
        + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a bad chunk": start + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "an unknown coding": start + b"Transfer-Encoding: cow\r\n\r\n",
        "no version": f"POST {CHAT}\r\n\r\n".encode(),
        "no host": f"POST {CHAT} HTTP/1.1\r\n".encode() + key + b"\r\n\r\n",
        "two hosts": start + b"Host: y\r\n\r\n",
        "a folded key": f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization:\r\n Bearer x\r\n\r\n".encode(),
        "a line feed in a key": start + b"x-api-key: a\nb\r\n\r\n",
        "NUL in a key": start + b"x-api-key: a\x00b\r\n\r\n",
        "a blank in a name": start + b"x y: 1\r\n\r\n",
        "a non-ASCII path": b"POST /v1/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    }
    for name, data in requests.items():
        yield _bad("framing", name, data, CHAT, "", 400, 401, 501)
    endless = start + b"Content-Length: 99999999999\r\n\r\n"
    yield _bad("framing", "100 GB announced", endless, CHAT, "bytes", 413)
