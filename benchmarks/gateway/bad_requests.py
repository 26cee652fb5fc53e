"""Requests of tenants that a gateway has to refuse: wrong credentials, bodies, models, limits and paths."""

import json
from collections.abc import Iterator

from benchmarks.gateway.bad_credentials import two_credentials, wrong_headers, wrong_keys
from benchmarks.gateway.tenant_requests import (
    CALLER,
    CHAT,
    CHATTING,
    GOOD,
    GOOD_BODY,
    HIDDEN_MODEL,
    MAX_BODY_BYTES,
    MESSAGES,
    OTHER,
    RESPONSES,
    SPENT,
    BadRequest,
    bad_request,
    key_header,
    write_request,
)


def bad_requests() -> list[BadRequest]:
    """Return all, which are the same in each call."""
    return [
        *wrong_keys(), *wrong_headers(), *two_credentials(), *_large_heads(), *_bad_bodies(),
        *_models(), *_limits(), *_paths(), *_framing(),
    ]  # fmt: skip


def _large_heads() -> Iterator[BadRequest]:
    key, body = key_header(CALLER.text), GOOD_BODY
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
            yield bad_request(
                "large head", name, write_request(path, body, *lines), path, "header", 431
            )
    data = write_request("/" + "y" * 80_000, body, key)
    yield bad_request("large head", "a path of 80 KB", data, "/", "path", 431)


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
            data = write_request(path, body, key_header(CALLER.text))
            yield bad_request("bad body", name, data, path, "", 400)
    for name, type_ in {
        "text": b"text/plain",
        "a form": b"multipart/form-data; boundary=x",
    }.items():
        data = write_request(CHAT, GOOD_BODY, key_header(CALLER.text), type_=type_)
        yield bad_request("bad body", f"of the type of {name}", data, CHAT, "application/json", 415)
    data = write_request(CHAT, GOOD_BODY, key_header(CALLER.text), b"Content-Encoding: gzip")
    yield bad_request("bad body", "compressed", data, CHAT, "compressed", 415)


def _models() -> Iterator[BadRequest]:
    names = (
        HIDDEN_MODEL, f"elsewhere/{HIDDEN_MODEL}", f"default/{HIDDEN_MODEL}",
        f"default/../elsewhere/{HIDDEN_MODEL}", "CHAT", " chat", "chat ", "chat\n", "default//chat", "/chat",
        "chat/", "*", "ch\u0430t", "gpt-4o", "x" * 50_000,
    )  # fmt: skip
    for path in (CHAT, MESSAGES):
        for name in names:
            body = json.dumps(GOOD | {"model": name}).encode()
            data = write_request(path, body, key_header(CALLER.text))
            yield bad_request("model", ascii(name[:40]), data, path, "does not exist", 404)
    data = write_request(CHAT, GOOD_BODY, key_header(OTHER.text))
    yield bad_request("model", "of another tenant", data, CHAT, "does not exist", 404)
    data = write_request(f"/v1/models/{HIDDEN_MODEL}", b"", key_header(CALLER.text), method=b"GET")
    yield bad_request("model", "read by name", data, CHAT, "does not exist", 404)


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
            data = write_request(path, json.dumps(GOOD | fields).encode(), key_header(CALLER.text))
            yield bad_request("limit", name, data, path, says, status)
        data = write_request(path, GOOD_BODY, key_header(SPENT.text))
        yield bad_request("limit", "spent", data, path, "limit", 400, 429)
    for name, fields in {"choices": {"n": 501}, "all choices": {"n": 200}}.items():
        data = write_request(CHAT, json.dumps(GOOD | fields).encode(), key_header(CALLER.text))
        yield bad_request("limit", name, data, CHAT, "500", 400)
    for path in (MESSAGES, RESPONSES, "/v1/embeddings"):
        data = write_request(path, GOOD_BODY, key_header(CHATTING.text))
        yield bad_request("limit", "route", data, path, "no access", 403)


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
        data = write_request(path, GOOD_BODY, key_header(CALLER.text))
        yield bad_request("path", path[:60], data, path, "", 404)
    for method, path in (
        (b"GET", "/v1/responses/resp_1"), (b"DELETE", "/v1/responses/resp_1"),
        (b"POST", "/v1/responses/resp_1/cancel"), (b"GET", f"/v1/responses/{'r' * 5000}"),
        (b"GET", "/v1/files/file-1"), (b"POST", "/v1/batches/batch_1/cancel"), (b"GET", "/v1/realtime"),
    ):  # fmt: skip
        data = write_request(path, b"", key_header(CALLER.text), method=method)
        yield bad_request("path", f"{method.decode()} {path[:60]}", data, path, "", 404)
    for method in (b"GET", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"post", b"BREW"):
        for path in (CHAT, MESSAGES):
            data = write_request(path, b"", key_header(CALLER.text), method=method)
            yield bad_request("path", f"{method.decode()} {path}", data, path, "POST", 405)


def _framing() -> Iterator[BadRequest]:
    key = key_header(CALLER.text)
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
        "NUL behind a key": start + key + b"\x00\r\n\r\n",
        "a blank in a name": start + b"x y: 1\r\n\r\n",
        "a non-ASCII path": b"POST /v1/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n\r\n",
        "HTTP/1.0 with chunks": f"POST {CHAT} HTTP/1.0\r\n".encode()
        + key
        + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    }
    for name, data in requests.items():
        yield bad_request("framing", name, data, CHAT, "", 400, 401, 501)
    endless = start + b"Content-Length: 99999999999\r\n\r\n"
    yield bad_request("framing", "100 GB announced", endless, CHAT, "bytes", 413)
