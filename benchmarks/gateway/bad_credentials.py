"""Requests with wrong keys, keys in wrong headers, and two credentials."""

import base64
from collections.abc import Iterator

from benchmarks.gateway.tenant_requests import (
    CALLER,
    CHAT,
    EXPIRED,
    GOOD_BODY,
    MESSAGES,
    ORPHAN,
    OTHER,
    RESPONSES,
    SUSPENDED,
    UNKNOWN,
    BadRequest,
    bad_request,
    key_header,
    write_request,
)

FORMS = (CHAT, MESSAGES, RESPONSES)
# More than the kernel's buffers hold, of a body that is not read.
UNREAD_BYTES = 8 << 20


def wrong_keys() -> Iterator[BadRequest]:
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
                data = write_request(path, body, key_header(value))
                yield bad_request(f"wrong {says}", name, data, path, says, 401)
        data = write_request(path, body, key_header(SUSPENDED.text))
        yield bad_request("wrong API key", "of a suspended tenant", data, path, "suspended", 403)
        data = write_request(path, b"x" * UNREAD_BYTES, key_header(UNKNOWN.text))
        yield bad_request("wrong API key", "before a large body", data, path, "API key", 401)
        data = write_request(path, body, key_header(UNKNOWN.text), b"Expect: 100-continue")
        yield bad_request("wrong API key", "of a client that waits", data, path, "API key", 401)


def wrong_headers() -> Iterator[BadRequest]:
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
            data = write_request(path, GOOD_BODY, line.encode())
            yield bad_request("wrong header", name, data, path, "Authorization: Bearer KEY", 401)
        data = write_request(f"{path}?key={key}", GOOD_BODY)
        yield bad_request("wrong header", "query", data, path, "Authorization: Bearer KEY", 401)


def two_credentials() -> Iterator[BadRequest]:
    right, wrong = CALLER.text, OTHER.text
    pairs = {
        "both headers": (key_header(right), b"x-api-key: " + wrong.encode()),
        "both headers, the other way": (b"x-api-key: " + right.encode(), key_header(wrong)),
        "authorization twice": (key_header(right), key_header(wrong)),
        "x-api-key twice": (b"x-api-key: " + right.encode(), b"x-api-key: " + wrong.encode()),
        "a token and a key": (key_header("a.b.c"), b"x-api-key: " + right.encode()),
        "Basic and a key": (b"Authorization: Basic eDp5", b"x-api-key: " + right.encode()),
    }
    for path in (CHAT, MESSAGES):
        for name, lines in pairs.items():
            data = write_request(path, GOOD_BODY, *lines)
            yield bad_request("two credentials", name, data, path, "different", 400)
