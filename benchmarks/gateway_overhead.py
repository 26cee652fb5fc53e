"""What the gateway costs: the same requests straight to a trivial engine and through the gateway.

    python benchmarks/gateway_overhead.py [--seconds 5] [--clients 16] [--chunks 50]

The engine and the gateway are processes of their own; the load comes from this one. Both ways are
measured in turn, several times, so that a noisy machine disturbs both alike. A fourth figure is the
CPU time of the gateway process for each request and for each chunk.
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


async def gateway(engine_port: int) -> None:
    """The real gateway, with a fleet of one engine that nobody has to watch."""
    from penstock.core.routing import Endpoint, Side
    from penstock.gateway.app import Gateway
    from penstock.gateway.fleet import Fleet
    from penstock.gateway.server import run, server_for
    from penstock.gateway.settings import GatewaySettings
    from penstock.gateway.snapshot import Service, Snapshot
    from penstock.gateway.upstream import Upstream

    settings = GatewaySettings(host="127.0.0.1", port=0)
    endpoint = Endpoint("default/engine", f"127.0.0.1:{engine_port}", "r1")
    fleet = Fleet()
    fleet.publish(Snapshot((Service("default", "m", "m", 0, {Side("r1"): 100}, (endpoint,)),)))
    async with Upstream(settings) as upstream:
        made = Gateway(fleet, upstream, settings)
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


async def load(port: int, clients: int, seconds: float, stream: bool) -> list[float]:
    """The latency of each request that `clients` could make one after the other."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "x" * 400}]}

    async def client(session: aiohttp.ClientSession) -> None:
        while (began := time.perf_counter()) < end:
            async with session.post(
                f"http://127.0.0.1:{port}/v1/chat/completions", json=body
            ) as got:
                text = await got.read()
            assert got.status == 200
            assert text.endswith(DONE if stream else WHOLE)
            took.append(time.perf_counter() - began)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return took


def describe(name: str, took: list[float], seconds: float) -> float:
    cuts = statistics.quantiles(took, n=100)
    rate = len(took) / seconds
    print(
        f"{name:9} {rate:8.0f} requests/s   p50 {cuts[49] * 1e3:7.2f} ms   p99 {cuts[98] * 1e3:7.2f} ms"
    )
    return rate


async def compare(options: argparse.Namespace, *, stream: bool) -> None:
    async with (
        process("engine", str(options.chunks)) as (engine_port, _),
        process("gateway", str(engine_port)) as (gateway_port, pid),
    ):
        direct: list[float] = []
        through: list[float] = []
        cpu_s = 0.0
        watched = psutil.Process(pid)
        rounds = 4
        for _ in range(rounds):
            direct += await load(engine_port, options.clients, options.seconds / rounds, stream)
            before = sum(watched.cpu_times()[:2])
            through += await load(gateway_port, options.clients, options.seconds / rounds, stream)
            cpu_s += sum(watched.cpu_times()[:2]) - before
    kind = f"streams of {options.chunks} events" if stream else "whole answers"
    print(f"\n{kind}, {options.clients} clients")
    ratio = describe("direct", direct, options.seconds)
    ratio /= describe("gateway", through, options.seconds)
    each_s = cpu_s / len(through)
    print(
        f"direct is {ratio:.2f} times as fast; the gateway's CPU: {each_s * 1e3:.2f} ms a request"
    )
    if stream:
        print(f"which is {each_s / options.chunks * 1e6:.0f} us a chunk, all of it included")


def main() -> None:
    if sys.argv[1:2] == ["engine"]:
        asyncio.run(engine(int(sys.argv[2])))
    elif sys.argv[1:2] == ["gateway"]:
        import uvicorn

        with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
            runner.run(gateway(int(sys.argv[2])))
    else:
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawTextHelpFormatter
        )
        parser.add_argument("--seconds", type=float, default=5.0, help="of load, for each way")
        parser.add_argument("--clients", type=int, default=16)
        parser.add_argument("--chunks", type=int, default=50)
        options = parser.parse_args()
        for stream in (False, True):
            asyncio.run(compare(options, stream=stream))


if __name__ == "__main__":
    main()
