"""Holds thousands of streams open through one gateway with keys and limits, and watches its memory.

    python -m benchmarks.gateway.streams [--streams 3000] [--seconds 600]

Engine, gateway and server of Redis are processes; this process is the client. Each connection sends one
request after another: a stream of 30 to 90 events, one each second, with the keys of 10 tenants in turn.
Bars: each stream has all its events and its end, and the gateway's resident memory stays below 1 GiB.
"""

import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from benchmarks.gateway.overhead import EVENT, LAST_EVENTS, process
from benchmarks.gateway.tenant_cost import MODULE as GATEWAY_MODULE
from benchmarks.gateway.tenant_fleet import make_tenants
from benchmarks.options import option_parser
from tests.support.tools.redis_process import redis_process

MODULE = "benchmarks.gateway.streams"
MEMORY_BAR_MIB = 1024.0
LEAST_EVENTS, MOST_EVENTS = 30, 90
# An engine's streams have an event each second; each tick serves a part of them.
TICKS = 20
# New connections in a second: the listener's backlog is bounded.
OPENED_PER_S = 300
EVENT_MARK, DONE_MARK, END = b'"delta"', b"[DONE]", b"0\r\n\r\n"
# More bytes than a mark has may not be searched twice.
TAIL_BYTES = len(EVENT_MARK) - 1
LATE_S = 2.0


class EngineConnection(asyncio.Protocol):
    """A connection of an engine that answers with a stream of `max_tokens` events, one each second."""

    def __init__(self, ticking: list[set["EngineConnection"]]) -> None:
        self._ticking = ticking
        self._received = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        for each in self._ticking:
            each.discard(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        self._received, self._left = b"", json.loads(body)["max_tokens"]
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        random.choice(self._ticking).add(self)

    def tick(self) -> bool:
        """Send an event. Returns False if it was the last one."""
        self._left -= 1
        events = b"".join([EVENT, *LAST_EVENTS]) if not self._left else EVENT
        end = END if not self._left else b""
        self._transport.write(b"%x\r\n%s\r\n%s" % (len(events), events, end))
        return self._left > 0


async def engine() -> None:
    """Serve streams until the process is killed."""
    ticking: list[set[EngineConnection]] = [set() for _ in range(TICKS)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: EngineConnection(ticking), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    due_s = loop.time()
    for connections in itertools.cycle(ticking):
        due_s += 1 / TICKS
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        connections -= {each for each in list(connections) if not each.tick()}


@dataclass
class Totals:
    """Counts over all clients. gaps: number of events by time since the one before, in whole 0.1 s."""

    num_open: int = 0
    num_complete: int = 0
    num_events: int = 0
    num_late: int = 0
    longest_s: float = 0.0
    errors: list[str] = field(default_factory=list)


class Client(asyncio.Protocol):
    """A connection that reads one stream after another until `end_s`."""

    def __init__(self, totals: Totals, key: str, end_s: float) -> None:
        self._totals, self._key, self._end_s = totals, key, end_s
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._totals.num_open += 1
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._totals.num_open -= 1
        if not self.ended.done():
            self._totals.errors.append(f"closed: {error!r} {self._start[:300]!r}")
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        if len(self._start) < 2000:
            self._start += data
        whole = self._tail + data
        found = whole.count(EVENT_MARK)
        self._is_done |= DONE_MARK in whole
        self._tail = whole[-TAIL_BYTES:]
        if found:
            self._note_events(found)
        is_refused = self._start[9:12] not in (b"", b"200")
        if whole.endswith(END) or is_refused:
            self._note_end()

    def _send(self) -> None:
        self._expected = random.randint(LEAST_EVENTS, MOST_EVENTS)
        self._num_events, self._last_s = 0, 0.0
        self._is_done, self._start, self._tail = False, b"", b""
        body = json.dumps(
            {
                "model": "plain", "stream": True, "max_tokens": self._expected,
                "messages": [{"role": "user", "content": "x" * 400}],
            }
        ).encode()  # fmt: skip
        self._transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %s\r\ncontent-length: %d\r\n\r\n%s"
            % (self._key.encode(), len(body), body)
        )

    def _note_events(self, found: int) -> None:
        now_s = time.monotonic()
        if self._last_s:
            gap_s = now_s - self._last_s
            self._totals.num_late += gap_s > LATE_S
            self._totals.longest_s = max(self._totals.longest_s, gap_s)
        self._last_s = now_s
        self._num_events += found
        self._totals.num_events += found

    def _note_end(self) -> None:
        is_right = self._num_events == self._expected and self._is_done
        if is_right and self._start.startswith(b"HTTP/1.1 200"):
            self._totals.num_complete += 1
        else:
            seen = f"{self._num_events} of {self._expected} events"
            self._totals.errors.append(f"{seen}: {self._start[:600]!r}")
        if time.monotonic() < self._end_s:
            self._send()
        else:
            self.ended.set_result(None)
            self._transport.close()


async def run_clients(port: int, num_streams: int, end_s: float, totals: Totals) -> None:
    """Open the connections one after the other, and wait until all have ended."""
    keys = itertools.cycle(make_tenants().keys)
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(num_streams):
        _, client = await loop.create_connection(
            lambda: Client(totals, next(keys), end_s), "127.0.0.1", port
        )
        clients.append(client.ended)
        await asyncio.sleep(1 / OPENED_PER_S)
    await asyncio.gather(*clients)


async def watch(pid: int, totals: Totals, most: dict[str, float]) -> None:
    """Print what happens each half minute, and note the most memory and streams."""
    gateway, started_s = psutil.Process(pid), time.monotonic()
    for second in itertools.count():
        memory_mib = gateway.memory_info().rss / 2**20
        most["memory"] = max(most.get("memory", 0.0), memory_mib)
        most["streams"] = max(most.get("streams", 0), totals.num_open)
        if second % 30 == 0:
            cpu_s = sum(gateway.cpu_times()[:2])
            print(
                f"{time.monotonic() - started_s:5.0f} s  {totals.num_open} open, {totals.num_complete} "
                f"complete, {totals.num_events} events, {len(totals.errors)} errors, {memory_mib:.0f} MiB, "
                f"{cpu_s:.0f} s of processor",
                flush=True,
            )
        await asyncio.sleep(1.0)


async def measure(num_streams: int, seconds: float) -> bool:
    """Run it and print the outcome. Returns whether all bars are met."""
    totals, most = Totals(), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, redis_process(Path(folder)) as redis:
        async with process("engine", module=MODULE) as (engine_port, _):
            role = "gateway", "tenants", str(engine_port), redis.url
            async with process(*role, module=GATEWAY_MODULE) as (port, pid):
                watcher = asyncio.create_task(watch(pid, totals, most))
                end_s = time.monotonic() + seconds
                await run_clients(port, num_streams, end_s, totals)
                watcher.cancel()
    print(
        f"{most['streams']:.0f} streams at a time; {totals.num_complete} complete with {totals.num_events} "
        f"events, {len(totals.errors)} with an error; gateway's memory at most {most['memory']:.0f} MiB; "
        f"events later than {LATE_S:g} s: {totals.num_late}, the longest gap {totals.longest_s:.1f} s"
    )
    print(*totals.errors[:5], sep="\n")
    is_full = most["streams"] >= num_streams
    return is_full and not totals.errors and most["memory"] <= MEMORY_BAR_MIB


def main() -> None:
    if sys.argv[1:2] == ["engine"]:
        asyncio.run(engine())
        return
    options = option_parser(__doc__, streams=3000, seconds=600.0).parse_args()
    if not asyncio.run(measure(options.streams, options.seconds)):
        sys.exit("a bar is missed")


if __name__ == "__main__":
    main()
