"""Sends hostile connections to the gateway: request smuggling, header overrides, slow clients.

    python -m benchmarks.gateway.hostile_connections [--requests 1000] [--seed 0] [--clients 50]

Requests of five kinds go to a real gateway process before a recording engine: with an Upgrade header, with
trailers, pipelined, and with a head or a body that arrives slowly or never. Exits with 1 if a request is
answered twice or out of order, if the engine gets a request that was not sent or a header that clients may
not set, or if a status is unexpected. Prints the gateway's resident memory before and its peak.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from benchmarks.gateway.stand import running_gateway

from penstock.core.routing.pick import Endpoint, Side
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot

ANSWER_TIMEOUT_S = 30.0
# The gateway's time limits in this campaign, short enough for slow clients to exceed them.
HEAD_TIMEOUT_S = BODY_TIMEOUT_S = 1.0
# Pause between two pieces of a request.
PAUSE_S = 0.01
FORBIDDEN = ("x-penstock-", "authorization", "te", "trailer", "upgrade", "http2-settings")
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


@dataclass
class RecordingEngine:
    """Engine that answers each request with its id and records it. seen: header lists by id."""

    seen: dict[str, list[list[tuple[str, str]]]] = field(default_factory=dict)

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = [line.partition(": ") for line in head.split("\r\n")[1:] if line]
                headers = [(name.lower(), value) for name, _, value in lines]
                body = await reader.readexactly(int(dict(headers)["content-length"]))
                request_id = json.loads(body)["user"]
                self.seen.setdefault(request_id, []).append(headers)
                answer = json.dumps({"id": request_id}).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n%s" % (len(answer), answer)
                )
        writer.close()

    def wrong(self) -> Iterator[str]:
        for request_id, all_headers in self.seen.items():
            if request_id == "mallory":
                yield "the engine saw a request that nobody sent"
            if len(all_headers) > 1:
                yield f"{request_id}: the engine saw it {len(all_headers)} times"
            for headers in all_headers:
                tenants = [value for name, value in headers if name == "x-tenant"]
                if tenants != ["alice"]:
                    yield f"{request_id}: the engine saw the tenants {tenants}"
                if names := [name for name, _ in headers if name.startswith(FORBIDDEN)]:
                    yield f"{request_id}: the engine saw {names}"


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


async def send(host: str, port: int, hostile: Hostile) -> list[tuple[int, str]]:
    """Send a connection. Returns (status, id) of each answer. Raises TimeoutError if it stays open."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with suppress(ConnectionError):
                for piece in hostile.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(PAUSE_S)
            text = bytearray()
            with suppress(ConnectionError):
                while got := await reader.read(65_536):
                    text += got
        return list(_answers(bytes(text)))
    finally:
        writer.close()


def _answers(text: bytes) -> Iterator[tuple[int, str]]:
    while text:
        head, _, text = text.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body, text = text[:length], text[length:]
        yield int(head.split()[1]), json.loads(body).get("id", "")


def wrong_answers(hostile: Hostile, answers: list[tuple[int, str]]) -> Iterator[str]:
    name = f"{hostile.kind} {hostile.ids}"
    first = answers[0][0] if answers else CLOSED
    if first not in hostile.statuses:
        yield f"{name}: {first} is none of {sorted(hostile.statuses)}"
    if len(answers) > max(1, len(hostile.ids)):
        yield f"{name}: {len(answers)} answers"
    ids = tuple(one for status, one in answers if status == 200)
    if ids != hostile.ids[: len(ids)]:
        yield f"{name}: answers to {ids}"
    if hostile.is_complete and hostile.statuses == {200} and len(ids) < len(hostile.ids):
        yield f"{name}: {len(ids)} answers only"


async def campaign(
    host: str, port: int, engine: RecordingEngine, cases: list[Hostile], *, clients: int
) -> tuple[dict[str, Counter[int]], list[str]]:
    """Offer the cases, `clients` at a time. Returns the statuses by kind of client, and all
    violations."""
    statuses: dict[str, Counter[int]] = {}
    wrong: list[str] = []
    gate = asyncio.Semaphore(clients)

    async def offer(hostile: Hostile) -> None:
        async with gate:
            try:
                answers = await send(host, port, hostile)
            except TimeoutError:
                wrong.append(f"{hostile.kind} {hostile.ids}: the connection stays open")
                return
        counts = statuses.setdefault(hostile.kind, Counter())
        counts.update([status for status, _ in answers] or [CLOSED])
        wrong.extend(wrong_answers(hostile, answers))

    await asyncio.gather(*(offer(hostile) for hostile in cases))
    return statuses, wrong + list(engine.wrong())


async def gateway(engine_port: int) -> None:
    """Serve the real gateway with one service."""
    settings = GatewaySettings(
        host="127.0.0.1",
        port=0,
        management_port=0,
        head_timeout_s=HEAD_TIMEOUT_S,
        request_timeout_s=BODY_TIMEOUT_S,
    )
    endpoint = Endpoint("default/chat", f"127.0.0.1:{engine_port}", "r1")
    service = Service("default", "chat", "chat", 0, {Side("r1"): 100}, (endpoint,))
    async with running_gateway(Snapshot((service,)), settings) as (_, servers):
        print(servers.clients.port, flush=True)
        await asyncio.Event().wait()  # it is killed


async def run_campaign(options: argparse.Namespace) -> list[str]:
    engine = RecordingEngine()
    server = await engine.start()
    port = server.sockets[0].getsockname()[1]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.gateway.hostile_connections", "--engine-port", str(port),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        gateway_port = int(await child.stdout.readline())
        watched = psutil.Process(child.pid)
        before_bytes = watched.memory_info().rss
        watch = asyncio.create_task(_peak(watched))
        statuses, wrong = await campaign(
            "127.0.0.1",
            gateway_port,
            engine,
            corpus(options.seed, options.requests),
            clients=options.clients,
        )
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
    finally:
        child.kill()
        await child.wait()
    for kind, counts in statuses.items():
        print(f"{kind:10} {dict(sorted(counts.items()))}")
    print(f"engine: {sum(len(each) for each in engine.seen.values())} requests")
    peak_bytes = max(PEAK_BYTES)
    print(f"resident: {before_bytes / 2**20:.0f} MiB before, {peak_bytes / 2**20:.0f} MiB at most")
    return wrong


PEAK_BYTES = [0]


async def _peak(watched: psutil.Process) -> None:
    while True:
        PEAK_BYTES[0] = max(PEAK_BYTES[0], watched.memory_info().rss)
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000, help="connections of each kind")
    parser.add_argument("--clients", type=int, default=50, help="connections at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine-port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine_port:
        asyncio.run(gateway(options.engine_port))
        return
    wrong = asyncio.run(run_campaign(options))
    print(*wrong[:50], f"{len(wrong)} things that must not have happened", sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
