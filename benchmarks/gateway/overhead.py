"""Measures the gateway's overhead: requests direct to a trivial engine and through the gateway.

    python -m benchmarks.gateway.overhead [--seconds 5] [--clients 16] [--chunks 50]
        [--httptools] [--before DIR]

Engine and gateway are separate processes; this process is the client. The paths are measured in turns, so
that noise of the machine affects all of them, --seconds each: direct to the engine, through the gateway, to a
service with objectives (which has an admission queue), and by a route that mirrors each request to a second
engine. The gateway's CPU time per request is printed.

--httptools adds the same gateway behind uvicorn's httptools protocol, and --before the gateway of another
checkout.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import psutil
import uvicorn
from benchmarks.http_load import closed_loop, for_seconds
from benchmarks.options import option_parser

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import Mirror, RouteRule
from penstock.core.spec.objectives import Objectives
from penstock.gateway.app import Gateway
from penstock.gateway.server import run
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Route, Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.upstream.upstream import Upstream

EVENT = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"delta":{"content":" a"}}]}\n\n'
)
DONE = b"data: [DONE]\n\n"
# Paths of requests, with the model of each.
WAYS = {"direct": "plain", "gateway": "plain", "objectives": "timed", "copied": "copied"}
ROUNDS = 4
SPENT = "/spent"
USAGE = b'"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150}'
# Engines report usage in the last event of each response.
LAST_EVENTS = [b'data: {"id":"x","choices":[],%b}\n\n' % USAGE, DONE]
WHOLE = (
    b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"all of it"},'
    b'"finish_reason":"stop"}],%b}' % USAGE
)


async def engine(chunks: int, least_s: float, most_s: float) -> None:
    """Serve answers after a pause: a stream of `chunks` events, or one body; -1 chunks: never answer."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunks < 0:
                await reader.readexactly(1)
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                if most_s:
                    await asyncio.sleep(random.uniform(least_s, most_s))
                if not body or not json.loads(body).get("stream"):  # none: a proxy's probe
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                        b"content-length: %d\r\n\r\n%s" % (len(WHOLE), WHOLE)
                    )
                    continue
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for event in [EVENT] * chunks + LAST_EVENTS:
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Clocked:
    """ASGI application that records the CPU time from each request's arrival to its end."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._spent_s: list[float] = []

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["path"] == SPENT:
            told, self._spent_s = json.dumps(self._spent_s).encode(), []
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": told})
            return
        began_s = time.thread_time()
        await self._app(scope, receive, send)
        self._spent_s.append(time.thread_time() - began_s)


def snapshot(engine_port: int, shadow_port: int, mute_port: int) -> Snapshot:
    """A fixed fleet: the models of WAYS, and those whose copies are refused or never answered."""

    def service(name: str, port: int, objectives: Objectives | None = None) -> Service:
        endpoint = Endpoint(f"default/{name}", f"127.0.0.1:{port}", "r1")
        weights = {Side("r1"): 100}
        return Service("default", name, name, 0, weights, (endpoint,), objectives)

    def route(name: str, mirror: str) -> Route:
        rule = RouteRule((), (("plain", 1),), mirrors=(Mirror(mirror, None, 100),))
        return Route("default", name, name, 0, (rule,))

    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))  # a port without a listener
    services = (
        service("plain", engine_port),
        service("timed", engine_port, Objectives(60.0, 60.0)),
        service("mirror", shadow_port),
        service("closed", closed.getsockname()[1]),
        service("mute", mute_port),
    )
    routes = (route("copied", "mirror"), route("refused", "closed"), route("unanswered", "mute"))
    return Snapshot(services, routes)


async def gateway(http: str, engine_port: int, shadow_port: int, mute_port: int) -> None:
    """Serve the real gateway with a fixed fleet.

    http: "own", or "httptools" for uvicorn's protocol of that name.
    """
    gc.freeze()  # as the gateway command does after its imports
    settings = GatewaySettings(host="127.0.0.1", port=0, management_port=0)

    snapshots = SnapshotStore()
    async with Upstream(settings) as upstream:
        made = Gateway(snapshots, upstream, settings)
        made.state.authenticator.tenants.publish((), is_open=True)
        snapshots.publish(snapshot(engine_port, shadow_port, mute_port))
        made.app = Clocked(made.app)
        servers = made.http_servers()
        server = servers.clients
        if http == "httptools":
            server.config.http = "httptools"
            running = asyncio.create_task(server.serve())
        else:
            running = asyncio.create_task(run(made, asyncio.Event(), servers))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        print(server.port, flush=True)
        await running


@asynccontextmanager
async def process(
    *arguments: str, checkout: str = "", module: str = "benchmarks.gateway.overhead"
) -> AsyncIterator[tuple[int, int]]:
    """Start a program in another role, or that of a checkout. Returns (port, pid)."""
    environment = dict(os.environ)
    if checkout:
        environment["PYTHONPATH"] = f"{checkout}/operator:{checkout}/engine"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        stdout=asyncio.subprocess.PIPE, env=environment, cwd=checkout or None,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield int(await child.stdout.readline()), child.pid
    finally:
        child.kill()
        await child.wait()


async def ask(session: aiohttp.ClientSession, port: int, model: str, stream: bool) -> float:
    """Send a request. Returns its latency in seconds."""
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "x" * 400}]}
    began = time.perf_counter()
    async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as got:
        text = await got.read()
    assert got.status == 200
    assert text.endswith(DONE if stream else WHOLE)
    return time.perf_counter() - began


async def load(port: int, model: str, clients: int, seconds: float, stream: bool) -> list[float]:
    """Closed-loop load of `clients` clients. Returns the latency of each request."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await closed_loop(
            clients, for_seconds(seconds), lambda _: ask(session, port, model, stream)
        )


def describe(name: str, took: list[float], seconds: float) -> str:
    cuts = statistics.quantiles(took, n=100)
    return (
        f"{name:10} {len(took) / seconds:8.0f} requests/s   p50 {cuts[49] * 1e3:7.2f} ms   "
        f"p99 {cuts[98] * 1e3:7.2f} ms"
    )


async def compare(options: argparse.Namespace, *, stream: bool) -> None:
    async with processes(options.chunks, httptools=options.httptools, before=options.before) as (
        engine_port,
        gateways,
    ):
        ways = {way: (model, gateways["own"]) for way, model in WAYS.items()}
        ways |= {name: ("plain", gateway) for name, gateway in gateways.items() if name != "own"}
        took: dict[str, list[float]] = {way: [] for way in ways}
        cpu_s = dict.fromkeys(ways, 0.0)
        for _ in range(ROUNDS):
            for way, (model, (gateway_port, pid)) in ways.items():
                port = engine_port if way == "direct" else gateway_port
                watched = psutil.Process(pid)
                before = sum(watched.cpu_times()[:2])
                seconds = options.seconds / ROUNDS
                took[way] += await load(port, model, options.clients, seconds, stream)
                cpu_s[way] += sum(watched.cpu_times()[:2]) - before
    kind = f"streams of {options.chunks} events" if stream else "whole answers"
    print(f"\n{kind}, {options.clients} clients")
    for way, latencies in took.items():
        each = f"   CPU {cpu_s[way] / len(latencies) * 1e3:.2f} ms" if way != "direct" else ""
        print(describe(way, latencies, options.seconds) + each)


@asynccontextmanager
async def processes(
    num_chunks: int, pause_s: float = 0.0, *, httptools: bool = False, before: str = ""
) -> AsyncIterator[tuple[int, dict[str, tuple[int, int]]]]:
    """Start the processes. Returns the engine's port, and the port and pid of each gateway.

    pause_s: before an engine answers; 0.5 to 1.5 times of it before it answers a copy. httptools, before:
    gateways beside ours, as in the command line.
    """
    chunks = str(num_chunks)
    for_callers = str(pause_s), str(pause_s)
    for_copies = str(0.5 * pause_s), str(1.5 * pause_s)
    async with (
        process("engine", chunks, *for_callers) as (engine_port, _),
        process("engine", chunks, *for_copies) as (shadow_port, _),
        process("engine", "-1", *for_copies) as (mute_port, _),
        AsyncExitStack() as stack,
    ):
        ports = [str(port) for port in (engine_port, shadow_port, mute_port)]
        start = stack.enter_async_context
        gateways = {"own": await start(process("gateway", "own", *ports))}
        if httptools:
            gateways["httptools"] = await start(process("gateway", "httptools", *ports))
        if before:
            gateways["before"] = await start(process("gateway", "own", *ports, checkout=before))
        yield engine_port, gateways


def main() -> None:
    if sys.argv[1:2] == ["engine"]:
        asyncio.run(engine(int(sys.argv[2]), *map(float, sys.argv[3:])))
    elif sys.argv[1:2] == ["gateway"]:
        with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
            runner.run(gateway(sys.argv[2], *map(int, sys.argv[3:])))
    else:
        options = option_parser(
            __doc__, seconds=5.0, clients=16, chunks=50, httptools=False, before=""
        ).parse_args()
        for stream in (False, True):
            asyncio.run(compare(options, stream=stream))


if __name__ == "__main__":
    main()
