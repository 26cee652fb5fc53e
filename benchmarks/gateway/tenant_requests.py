"""Tenants of the campaign of bad requests, and how such a request is written."""

import json
from dataclasses import dataclass

from tests.support.gateway_callers import api_key, tenant

from penstock.core.routing.apis import error_form
from penstock.core.tenants.tenant import Access, RequestLimits, Tenant, UsageLimit

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
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


def write_request(
    path: str,
    body: bytes,
    *lines: bytes,
    method: bytes = b"POST",
    type_: bytes = b"application/json",
) -> bytes:
    """The bytes of a request whose connection is then closed. lines: further headers."""
    head = [
        b"%s %s HTTP/1.1" % (method, path.encode()), b"Host: gateway", b"Connection: close",
        b"Content-Type: " + type_, *lines, b"Content-Length: %d" % len(body),
    ]  # fmt: skip
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def key_header(text: str | bytes) -> bytes:
    """The header in which OpenAI's clients send a key."""
    return b"Authorization: Bearer " + (text if isinstance(text, bytes) else text.encode())


def bad_request(
    kind: str, name: str, data: bytes, path: str, says: str, *statuses: int
) -> BadRequest:
    """A request that has to be refused with one of `statuses`, in the form of the API of `path`."""
    return BadRequest(kind, name, data, frozenset(statuses), error_form(path), says)
