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
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import psutil
from benchmarks.gateway.hostile_corpus import CLOSED, Hostile, corpus
from benchmarks.gateway.stand import DEFAULTS, chat_service
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.running_gateway import running_gateway

from penstock.core.routing.pick import Endpoint
from penstock.gateway.snapshots.snapshot import Snapshot

ANSWER_TIMEOUT_S = 30.0
# The gateway's time limits in this campaign, short enough for slow clients to exceed them.
HEAD_TIMEOUT_S = BODY_TIMEOUT_S = 1.0
# Pause between two pieces of a request.
PAUSE_S = 0.01
FORBIDDEN = ("x-penstock-", "authorization", "te", "trailer", "upgrade", "http2-settings")


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

    async def offer(hostile: Hostile) -> None:
        try:
            answers = await send(host, port, hostile)
        except TimeoutError:
            wrong.append(f"{hostile.kind} {hostile.ids}: the connection stays open")
            return
        counts = statuses.setdefault(hostile.kind, Counter())
        counts.update([status for status, _ in answers] or [CLOSED])
        wrong.extend(wrong_answers(hostile, answers))

    await closed_loop(clients, cases, offer)
    return statuses, wrong + list(engine.wrong())


async def gateway(engine_port: int) -> None:
    """Serve the real gateway with one service."""
    settings = replace(DEFAULTS, head_timeout_s=HEAD_TIMEOUT_S, request_timeout_s=BODY_TIMEOUT_S)
    service = chat_service(Endpoint("default/chat", f"127.0.0.1:{engine_port}", "r1"))
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
    parser = option_parser(__doc__, seed=0)
    parser.add_argument("--requests", type=int, default=1000, help="connections of each kind")
    parser.add_argument("--clients", type=int, default=50, help="connections at a time")
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
