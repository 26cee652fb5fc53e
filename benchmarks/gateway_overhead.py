"""What the gateway costs: the same requests straight to a trivial engine and through the gateway.

    python benchmarks/gateway_overhead.py [--seconds 5] [--clients 16] [--chunks 50] [--rate 50]

The engine and the gateway are processes of their own; the load comes from this one. All ways are
measured in turn, several times, so that a noisy machine disturbs them alike: straight to the engine,
through the gateway, to a service with objectives (which has a line), and by a route that copies each
request to a second engine. The gateway's CPU time is given for each request. At the end requests
come at a fixed rate, far from the gateway's limit: what a copy adds to the latency of its original.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import psutil

EVENT = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"delta":{"content":" a"}}]}\n\n'
)
DONE = b"data: [DONE]\n\n"
# How requests go, and what model they ask for.
WAYS = {"direct": "plain", "gateway": "plain", "objectives": "timed", "copied": "copied"}
ROUNDS = 4
WHOLE = b'{"choices":[{"message":{"content":"all of it"}}]}'


async def engine(chunks: int) -> None:
    """Answers at once: a stream of `chunks` events, or one body."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                if b'"stream": true' not in body:
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                        b"content-length: %d\r\n\r\n%s" % (len(WHOLE), WHOLE)
                    )
                    continue
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for event in [EVENT] * chunks + [DONE]:
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def gateway(engine_port: int, shadow_port: int) -> None:
    """The real gateway, with a fleet that nobody has to watch: the models of WAYS."""
    from penstock.core.route import Match, RouteRule, Shadow
    from penstock.core.routing import Endpoint, Side
    from penstock.core.rule import Objectives
    from penstock.gateway.app import Gateway
    from penstock.gateway.fleet import Fleet
    from penstock.gateway.server import run, server_for
    from penstock.gateway.settings import GatewaySettings
    from penstock.gateway.snapshot import Route, Service, Snapshot
    from penstock.gateway.upstream import Upstream

    settings = GatewaySettings(host="127.0.0.1", port=0)

    def service(name: str, port: int, objectives: Objectives | None = None) -> Service:
        endpoint = Endpoint(f"default/{name}", f"127.0.0.1:{port}", "r1")
        weights = {Side("r1"): 100}
        return Service("default", name, name, 0, weights, (endpoint,), objectives)

    rule = RouteRule(Match(), (("plain", 1),), shadows=(Shadow("shadow", None, 100),))
    services = (
        service("plain", engine_port),
        service("timed", engine_port, Objectives(60.0, 60.0)),
        service("shadow", shadow_port),
    )
    fleet = Fleet()
    routes = (Route("default", "copied", "copied", 0, (rule,)),)
    async with Upstream(settings) as upstream:
        made = Gateway(fleet, upstream, settings)
        fleet.publish(Snapshot(services, routes))
        server = server_for(made)
        running = asyncio.create_task(run(made, asyncio.Event(), server))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        print(server.port, flush=True)
        await running


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[int, int]]:
    """(port, pid) of this file run in another role."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        yield int(await child.stdout.readline()), child.pid
    finally:
        child.kill()
        await child.wait()


async def ask(session: aiohttp.ClientSession, port: int, model: str, stream: bool) -> float:
    """Its latency."""
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "x" * 400}]}
    began = time.perf_counter()
    async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as got:
        text = await got.read()
    assert got.status == 200
    assert text.endswith(DONE if stream else WHOLE)
    return time.perf_counter() - began


async def load(port: int, model: str, clients: int, seconds: float, stream: bool) -> list[float]:
    """The latency of each request that `clients` could make one after the other."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < end:
            took.append(await ask(session, port, model, stream))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return took


async def paced(port: int, model: str, rate: float, seconds: float) -> list[float]:
    """The latency of each stream, one begun every 1 / rate seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        asking = []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(began + number / rate - loop.time())
            asking.append(asyncio.create_task(ask(session, port, model, True)))
        return await asyncio.gather(*asking)


def describe(name: str, took: list[float], seconds: float) -> str:
    cuts = statistics.quantiles(took, n=100)
    return (
        f"{name:10} {len(took) / seconds:8.0f} requests/s   p50 {cuts[49] * 1e3:7.2f} ms   "
        f"p99 {cuts[98] * 1e3:7.2f} ms"
    )


async def compare(options: argparse.Namespace, *, stream: bool) -> None:
    async with processes(options) as (engine_port, gateway_port, pid):
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        cpu_s = dict.fromkeys(WAYS, 0.0)
        watched = psutil.Process(pid)
        for _ in range(ROUNDS):
            for way, model in WAYS.items():
                port = engine_port if way == "direct" else gateway_port
                before = sum(watched.cpu_times()[:2])
                seconds = options.seconds / ROUNDS
                took[way] += await load(port, model, options.clients, seconds, stream)
                cpu_s[way] += sum(watched.cpu_times()[:2]) - before
    kind = f"streams of {options.chunks} events" if stream else "whole answers"
    print(f"\n{kind}, {options.clients} clients")
    for way, latencies in took.items():
        each = f"   CPU {cpu_s[way] / len(latencies) * 1e3:.2f} ms" if way != "direct" else ""
        print(describe(way, latencies, options.seconds) + each)


async def copies(options: argparse.Namespace) -> None:
    async with processes(options) as (_, gateway_port, _):
        took: dict[str, list[float]] = {"gateway": [], "copied": []}
        for _ in range(2 * ROUNDS):
            for way in took:
                seconds = options.seconds / ROUNDS
                took[way] += await paced(gateway_port, WAYS[way], options.rate, seconds)
    print(f"\nstreams of {options.chunks} events, {options.rate:g} a second")
    for way, latencies in took.items():
        print(describe(way, latencies, 2 * options.seconds))


@asynccontextmanager
async def processes(options: argparse.Namespace) -> AsyncIterator[tuple[int, int, int]]:
    """(port of the engine, port of the gateway, pid of the gateway)."""
    chunks = str(options.chunks)
    async with (
        process("engine", chunks) as (engine_port, _),
        process("engine", chunks) as (shadow_port, _),
        process("gateway", str(engine_port), str(shadow_port)) as (gateway_port, pid),
    ):
        yield engine_port, gateway_port, pid


def main() -> None:
    if sys.argv[1:2] == ["engine"]:
        asyncio.run(engine(int(sys.argv[2])))
    elif sys.argv[1:2] == ["gateway"]:
        import uvicorn

        with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
            runner.run(gateway(int(sys.argv[2]), int(sys.argv[3])))
    else:
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawTextHelpFormatter
        )
        parser.add_argument("--seconds", type=float, default=5.0, help="of load, for each way")
        parser.add_argument("--clients", type=int, default=16)
        parser.add_argument("--chunks", type=int, default=50)
        parser.add_argument("--rate", type=float, default=50.0, help="of the last comparison")
        options = parser.parse_args()
        for stream in (False, True):
            asyncio.run(compare(options, stream=stream))
        asyncio.run(copies(options))


if __name__ == "__main__":
    main()
