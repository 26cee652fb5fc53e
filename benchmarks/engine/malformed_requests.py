"""Sends malformed HTTP requests, byte by byte, to a running engine.

    python -m benchmarks.engine.malformed_requests http://127.0.0.1:8000

Exits with 1 if an answer is an unplanned 5xx, if a connection stays open without an answer, or if the engine
is unhealthy afterwards.
"""

import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from select import select
from urllib.parse import urlsplit

from benchmarks.options import option_parser

ANSWER_TIMEOUT_S = 30.0
# Seconds after which a client with an incomplete request closes its sending half.
PATIENCE_S = 3.0
NUM_CLIENTS = 16
# Planned 5xx: queue full, asleep, stopping or deadline; the body names the reason.
PLANNED = frozenset({503, 504})
CLOSED = 0

JSON_ROUTES = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings", "/tokenize", "/detokenize",
)  # fmt: skip
GOOD_BODY = b'{"prompt": "hi", "max_tokens": 1}'

METHODS = (
    b"", b" ", b"get", b"GE T", b"G\x00T", b"POST\t", b"CONNECT", b"TRACE", b"OPTIONS", b"PRI",
    b"BREW", b"\xff\xfe", b"A" * 10_000, b"POST" * 30_000,
)  # fmt: skip
TARGETS = (
    b"", b"*", b"v1/completions", b"//v1//completions", b"/v1/completions/", b"/v1/completions/..",
    b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/%", b"/%zz", b"/%00", b"/\x00", b"/\xff",
    b"/a b", b"/?", b"/?&&&=", b"/#x", b"http://", b"http://[", b"http://other/v1/completions",
    b"/" + b"a" * 10_000, b"/?" + b"a" * 100_000, b"/\\..\\..", b"/;/health", b"/health%20",
)  # fmt: skip
VERSIONS = (
    b"", b"HTTP", b"HTTP/", b"HTTP/1", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/1.1.1", b"HTTP/2.0",
    b"HTTP/9.9", b"HTTP/-1.1", b"HTTP/1.-1", b"HTTX/1.1", b"HTTP/1.1 extra", b"HTTP/1,1",
    b"http/1.1", b"HTTP/\xb9.1",
)  # fmt: skip
HEADERS = (
    b"", b":", b": x", b"x", b"x y: z", b" x: y", b"x : y", b"\tx: y", b"x:\x00", b"x\x00: y",
    b"x: \r", b"x: a\rb", b"x: a\nb", b"x: \xff\xfe", b"\xff: x", b"x: y\r\n folded",
    b"host: other", b"host:", b"host: a\r\nhost: b", b"host: \x00", b"host: a b",
    b"x: " + b"y" * 70_000, b"x" * 70_000 + b": y", b"\r\n".join([b"x: y"] * 300),
    b"\r\n".join(b"x%d: y" % i for i in range(5000)), b"connection: upgrade\r\nupgrade: websocket",
    b"connection: upgrade\r\nupgrade: h2c", b"connection: close, keep-alive", b"expect: 100-continue",
    b"expect: miracle", b"content-type: text/xml", b"content-type: \xff", b"content-encoding: gzip",
    b"accept: nothing/*", b"accept-encoding: *;q=nan", b"authorization: ", b"authorization: Bearer",
    b"authorization: Bearer \xff", b"x-api-key: \x01", b"x-request-id: a\tb", b"x-request-id: " +
    b"i" * 5000, b"x-request-timeout-s: soon", b"x-request-timeout-s: -1", b"traceparent: 00-0-0-0",
    b"traceparent: " + b"f" * 5000, b"cookie: " + b"a=b;" * 5000, b"range: bytes=9-0",
)  # fmt: skip
LENGTHS = (
    b"", b"-1", b"+33", b"33a", b"0x21", b"3 3", b"33, 33", b"33\r\ncontent-length: 34", b"1e1",
    b"33.0", b"\xb933", b"18446744073709551616", b"9" * 400, b"4294967297", b"9" * 5000,
)  # fmt: skip
ENCODINGS = (
    b"", b"chunked, chunked", b"gzip, chunked", b"xchunked", b"identity", b"\x0bchunked",
    b"chunked\r\ntransfer-encoding: identity", b"chunked;q=1", b"deflate", b"chunked\x00",
)  # fmt: skip
CHUNKS = (
    b"", b"\r\n", b"zz\r\n", b"-1\r\n", b"0x21\r\n", b"ffffffffffffffff\r\n", b"1" * 5000 + b"\r\n",
    b"5\r\nab\r\n0\r\n\r\n", b"2\r\nabcd\r\n0\r\n\r\n", b"2 \r\nab\r\n0\r\n\r\n", b"2\nab\n0\n\n",
    b"2;" + b"e" * 70_000 + b"\r\nab\r\n0\r\n\r\n", b"0\r\nx\r\n\r\n", b"0\r\n" + b"x: y\r\n" * 5000,
    b"21\r\n" + GOOD_BODY + b"\r\n0\r\nhost: b\r\n\r\n", b"\x00\r\n", b"2\r\n\xff\xff\r\n0\r\n\r\n",
)  # fmt: skip
BODIES = (
    b"", b" ", b"\x00", b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b"{", b"}", b"{]", b"[]", b"null", b"7",
    b'"x"', b"NaN", b"{'prompt': 'x'}", b'{"prompt"}', b'{"prompt": }', b'{"prompt": "x"',
    b'{"prompt": "\x00"}', b'{"prompt": "\\ud800"}', b'{"prompt": "\xed\xa0\x80"}',
    b'{"prompt": "x"}{"prompt": "y"}', b'{"prompt": 1e999}', b'{"max_tokens": ' + b"9" * 9000 + b"}",
    b"[" * 50_000, b'{"a":' * 50_000, b'{"prompt": "' + b"\\u0000" * 9000 + b'"}',
    b"{" + b",".join(b'"k%d": 0' % i for i in range(20_000)) + b"}", b"a=b&c=d", b"<xml/>",
    b"\x1f\x8b\x08\x00", b"--x\r\ncontent-disposition: form-data\r\n\r\n--x--", b"\x80\x04\x95.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Malformed:
    """Malformed request. name: its fault."""

    name: str
    payload: bytes


def corpus(host: str, seed: int = 0) -> Iterator[Malformed]:
    """Malformed requests, each with one fault, and random bytes at the end."""
    line, end = b"POST /v1/completions HTTP/1.1\r\n", b"\r\n\r\n"
    own = b"host: " + host.encode() + b"\r\n"
    sized = own + b"content-length: %d" % len(GOOD_BODY)
    for method in METHODS:
        yield _named("method", method, method + b" /health HTTP/1.1\r\n" + own + b"\r\n")
    for target in TARGETS:
        for verb in (b"GET", b"POST"):
            head = verb + b" " + target + b" HTTP/1.1\r\n" + sized + end
            yield _named(f"target of {verb.decode()}", target, head + GOOD_BODY)
    for version in VERSIONS:
        yield _named("version", version, b"GET /health " + version + b"\r\n" + own + b"\r\n")
    for header in HEADERS:
        yield _named("header", header, line + sized + b"\r\n" + header + end + GOOD_BODY)
    for length in LENGTHS:
        yield _named("length", length, line + own + b"content-length: " + length + end + GOOD_BODY)
    for encoding in ENCODINGS:
        head = line + own + b"transfer-encoding: " + encoding
        yield _named("encoding", encoding, head + end + GOOD_BODY)
        yield _named("encoding and length", encoding, head + b"\r\ncontent-length: 5" + end)
    for chunk in CHUNKS:
        yield _named("chunks", chunk, line + own + b"transfer-encoding: chunked" + end + chunk)
    for route in JSON_ROUTES:
        for body in BODIES:
            head = f"POST {route} HTTP/1.1\r\n".encode() + own
            length = b"content-length: %d" % len(body)
            yield _named(f"body of {route}", body, head + length + end + body)
    yield from _streams(line, sized + end)
    noise = random.Random(seed)
    for size in (1, 2, 3, 5, 8, 100, 10_000, 200_000) * 3:
        yield Malformed(f"{size} bytes of noise", noise.randbytes(size))


def _streams(line: bytes, head: bytes) -> Iterator[Malformed]:
    """Requests with faults of order or framing."""
    good = line + head + GOOD_BODY
    yield Malformed("nothing at all", b"")
    yield Malformed("only line ends", b"\r\n" * 100)
    for cut in range(0, len(good), 7):
        yield Malformed(f"cut after {cut} bytes", good[:cut])
    yield Malformed("bare line feeds", good.replace(b"\r\n", b"\n"))
    yield Malformed("bare carriage returns", good.replace(b"\r\n", b"\r"))
    yield Malformed("more than was announced", good + b"x" * 5000)
    yield Malformed("two at once", good + good)
    yield Malformed("another within", good + b"GET /health HTTP/1.1\r\n\r\n")
    yield Malformed("a hundred at once", good * 100)
    yield Malformed("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
    yield Malformed("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100))
    yield Malformed("SOCKS", b"\x05\x01\x00")
    yield Malformed("an answer", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def _named(part: str, value: bytes, payload: bytes) -> Malformed:
    shown = value if len(value) <= 40 else value[:32] + b"... %d bytes" % len(value)
    return Malformed(f"{part} {shown!r}", payload)


def send(host: str, port: int, payload: bytes) -> int:
    """Send a request. Returns the status of the first answer, or CLOSED.

    Raises TimeoutError if the engine neither answers nor closes.
    """
    with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S) as connection:
        try:
            connection.sendall(payload)
            if not select([connection], [], [], PATIENCE_S)[0]:
                connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
        except (
            ConnectionResetError,
            BrokenPipeError,
        ):  # the engine closed before all bytes were sent
            return CLOSED
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else CLOSED


def is_well(host: str, port: int) -> bool:
    body = json.dumps({"prompt": "hi", "max_tokens": 1}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    return send(host, port, head.encode() + body) == 200


def campaign(host: str, port: int, seed: int = 0) -> tuple[Counter[int], list[str]]:
    """Send all requests. Returns counts of statuses, and faults."""

    def offer(malformed: Malformed) -> int | str:
        try:
            return send(host, port, malformed.payload)
        except OSError as error:  # TimeoutError included
            return str(error)

    requests = list(corpus(host, seed))
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        answers = list(clients.map(offer, requests))
    wrong = [
        f"{malformed.name}: {answer}"
        for malformed, answer in zip(requests, answers, strict=True)
        if isinstance(answer, str) or (answer >= 500 and answer not in PLANNED)
    ]
    if not is_well(host, port):
        wrong.append("afterwards it does not answer")
    return Counter(answer for answer in answers if isinstance(answer, int)), wrong


def main() -> None:
    parser = option_parser(__doc__, seed=0)
    parser.add_argument("url")
    args = parser.parse_args()
    url = urlsplit(args.url)
    statuses, wrong = campaign(url.hostname or "127.0.0.1", url.port or 80, args.seed)
    print(f"{sum(statuses.values())} requests: {dict(sorted(statuses.items()))}", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
