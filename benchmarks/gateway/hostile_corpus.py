"""Random hostile connections: request smuggling, header overrides, slow clients."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

SMUGGLED_BODY = b'{"model": "chat", "user": "mallory"}'
SMUGGLED = (
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-tenant: mallory\r\ncontent-length: %d\r\n\r\n%s"
    % (len(SMUGGLED_BODY), SMUGGLED_BODY)
)
TRAILERS = (
    b"x-tenant: mallory", b"x-penstock-tpot-s: 9", b"authorization: Bearer mallory", b"host: mallory",
    b"content-length: 5", b"transfer-encoding: chunked", b"connection: upgrade", b"x: y",
)  # fmt: skip
UPGRADES = (b"h2c", b"websocket", b"TLS/1.0", b"h2c, websocket", b"HTTP/3")
# Status of a connection that ends without an answer.
CLOSED = 0


@dataclass(frozen=True, slots=True)
class Hostile:
    """Bytes of one client connection. pieces: sent with pauses. ids: of the requests, in order.

    statuses: allowed for the first answer. is_complete: whether all requests may be answered.
    """

    kind: str
    pieces: tuple[bytes, ...]
    ids: tuple[str, ...]
    statuses: frozenset[int]
    is_complete: bool = True


def corpus(seed: int, count: int) -> list[Hostile]:
    """Build `count` connections of each kind, in random order."""
    draw = random.Random(seed)
    kinds: dict[str, Callable[[random.Random, str], Hostile]] = {
        "upgrade": _upgrade,
        "trailer": _trailer,
        "pipelined": _pipelined,
        "slow head": _slow_head,
        "slow body": _slow_body,
    }
    made = [make(draw, f"{kind}-{n}") for kind, make in kinds.items() for n in range(count)]
    draw.shuffle(made)
    return made


def _upgrade(draw: random.Random, request_id: str) -> Hostile:
    """Request with an Upgrade header; in half of them a second request follows the JSON in the body."""
    body = _body(request_id, draw.choice((10, 1000, 60_000, 300_000)))
    is_json = draw.random() < 0.5
    if not is_json:
        body += SMUGGLED * draw.randint(1, 3)
    connection = draw.choice(
        (b"close, upgrade", b"Upgrade, close", b"close, Upgrade, HTTP2-Settings")
    )
    lines = (
        b"connection: " + connection,
        b"upgrade: " + draw.choice(UPGRADES),
        b"http2-settings: AAMA",
    )
    statuses = frozenset({200 if is_json else 400})
    return Hostile("upgrade", _split(draw, _request(body, *lines)), (request_id,), statuses)


def _trailer(draw: random.Random, request_id: str) -> Hostile:
    body = _body(request_id, draw.choice((10, 5000)))
    is_endless = draw.random() < 0.1
    size = draw.randint(200, 300) if is_endless else draw.randint(1, 20)
    fields = [draw.choice(TRAILERS) for _ in range(size)]
    if is_endless:
        fields = [line + b"; " + b"y" * 5000 for line in fields]
    head = _head(b"connection: close", b"te: trailers", b"trailer: x-tenant")
    chunks = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(body), body)
    request = head + chunks + b"".join(line + b"\r\n" for line in fields) + b"\r\n"
    if is_endless:
        statuses = frozenset({400, 431})
    elif any(line.startswith((b"content-length", b"transfer-encoding")) for line in fields):
        statuses = frozenset({200, 400, 501})  # trailers may not contain these
    else:
        statuses = frozenset({200})
    return Hostile("trailer", _split(draw, request), (request_id,), statuses)


def _pipelined(draw: random.Random, request_id: str) -> Hostile:
    """Pipelined requests; a large one after the first, and those behind it, may stay unanswered."""
    ids = tuple(f"{request_id}-{n}" for n in range(draw.randint(2, 6)))
    is_large = draw.random() < 0.2
    sizes = [10 if not is_large or n == 0 else draw.choice((10, 200_000)) for n in range(len(ids))]
    requests = [_request(_body(one, size)) for one, size in zip(ids[:-1], sizes[:-1], strict=True)]
    requests.append(_request(_body(ids[-1], sizes[-1]), b"connection: close"))
    pieces = _split(draw, b"".join(requests))
    return Hostile("pipelined", pieces, ids, frozenset({200}), max(sizes) == 10)


def _slow_head(draw: random.Random, request_id: str) -> Hostile:
    request = _request(_body(request_id, 10), b"connection: close")
    return _slow(draw, "slow head", request_id, request, request.index(b"\r\n\r\n") + 3)


def _slow_body(draw: random.Random, request_id: str) -> Hostile:
    request = _request(_body(request_id, draw.choice((100, 20_000))), b"connection: close")
    return _slow(draw, "slow body", request_id, request, len(request) - 1)


def _slow(
    draw: random.Random, kind: str, request_id: str, request: bytes, unfinished_bytes: int
) -> Hostile:
    """Slow request; half of them stop at a point before `unfinished_bytes`."""
    if draw.random() < 0.5:
        least = 1 if kind == "slow head" else request.index(b"\r\n\r\n") + 4
        cut = request[: draw.randint(least, unfinished_bytes)]
        return Hostile(kind, _split(draw, cut), (), frozenset({408, CLOSED}))
    return Hostile(kind, _split(draw, request), (request_id,), frozenset({200}))


def _head(*lines: bytes) -> bytes:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-tenant: alice\r\n"
    return head + b"".join(line + b"\r\n" for line in lines)


def _request(body: bytes, *lines: bytes) -> bytes:
    return _head(*lines) + b"content-length: %d\r\n\r\n" % len(body) + body


def _body(request_id: str, num_bytes: int) -> bytes:
    return json.dumps({"model": "chat", "user": request_id, "prompt": "x" * num_bytes}).encode()


def _split(draw: random.Random, data: bytes) -> tuple[bytes, ...]:
    cuts = sorted(draw.randint(0, len(data)) for _ in range(draw.randint(0, 12)))
    return tuple(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))
