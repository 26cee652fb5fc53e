"""Measures a gateway at ten times the capacity of its engine, over real sockets.

    python -m benchmarks.tenants.overload [--seconds 60] [--times 10] [--seed 0]

Gateway, engine and client are processes. The engine prefills one prompt after the other, MEAN_S each on
average, and then streams its answer. Two tenants send at random times: one of the highest class a tenth of
the capacity, which is 1 / MEAN_S, and another the rest. Nobody sends again. Exits with 1 if

    goodput    the prompts of answers in time kept the engine busy for less than 90 % of the time
    highest    the highest class missed more than 1 % of its objectives
    refusals   more than 1 % of them took longer than 50 ms, or had no Retry-After
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import psutil
from benchmarks.gateway.stand import SETTINGS, running_gateway
from benchmarks.options import option_parser

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.objectives import Objectives
from penstock.core.tenants.api_key import ID_BYTES, SECRET_BYTES, make_api_key, store_key
from penstock.core.tenants.tenant import Access, ApiKeys, Tenant
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.tenants.api_key_index import IndexedKey

TTFT_S = 2.0
MEAN_S = 0.25
# Prompts are of 100 to 900 words, which the gateway takes for about as many tokens, and 500 take MEAN_S.
WORDS = 100, 900
MAX_REFUSAL_S = 0.05
NUM_EVENTS, EVENT_S = 20, 0.02
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
# Tenants by the number of their key, with their priorities and parts of the capacity.
PRIORITIES = {"high": 10, "low": 0}
KEYS = {
    name: make_api_key(bytes([number] * (ID_BYTES + SECRET_BYTES)))
    for number, name in enumerate(PRIORITIES)
}


def prompt_s(num_words: int) -> float:
    """Seconds that the engine takes for a prompt."""
    return MEAN_S * num_words / (sum(WORDS) / 2)


async def engine() -> None:
    """Serve streams, whose prompts are computed one after the other."""
    turn = asyncio.Lock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                async with turn:
                    await asyncio.sleep(prompt_s(body["messages"][0]["content"].count(" ")))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for event in [EVENT] * NUM_EVENTS + [DONE]:
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await asyncio.sleep(EVENT_S)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def gateway(engine_port: int) -> None:
    """Serve the gateway with the engine and the two tenants."""
    endpoint = Endpoint("default/chat-0", f"127.0.0.1:{engine_port}", "r1")
    weights, objectives = {Side("r1"): 100}, Objectives(TTFT_S, 1.0)
    service = Service("default", "chat", "chat", 0, weights, (endpoint,), objectives)
    async with running_gateway(Snapshot((service,)), SETTINGS) as (made, servers):
        keys = {}
        for name, key in KEYS.items():
            stored = store_key(key, bytes(16), "test", 0.0, float("inf")).hash
            keys[key.id] = IndexedKey(stored.digest, stored.expires_s, name)
        made.state.authenticator.keys.publish(keys)
        made.state.authenticator.tenants.publish(
            Tenant(name, 1, (ApiKeys("keys", name),), (Access("default"),), priority=priority)
            for name, priority in PRIORITIES.items()
        )
        print(servers.clients.port, flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[int, int]]:
    """Start this program in another role. Returns (port, pid)."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.tenants.overload", *arguments,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield int(await child.stdout.readline()), child.pid
    finally:
        child.kill()
        await child.wait()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a client. took_s: until the first event, or the refusal."""

    tenant: str
    num_words: int
    status: int
    took_s: float
    has_retry_after: bool

    @property
    def is_in_time(self) -> bool:
        return self.status == 200 and self.took_s <= TTFT_S


async def ask(
    session: aiohttp.ClientSession, port: int, tenant: str, draw: random.Random
) -> Answer:
    """Send a request, and read the answer."""
    num_words = draw.randint(*WORDS)
    content = " ".join(draw.choice(("some", "word", "here")) for _ in range(num_words))
    body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": content}]}
    headers = {"Authorization": f"Bearer {KEYS[tenant].text}"}
    url, started_s = f"http://127.0.0.1:{port}/v1/chat/completions", time.perf_counter()
    async with session.post(url, json=body, headers=headers) as got:
        await got.content.readany()
        took_s = time.perf_counter() - started_s
        await got.read()
        return Answer(tenant, num_words, got.status, took_s, "retry-after" in got.headers)


async def send_all(
    port: int, pid: int, seconds: float, times: float, seed: int
) -> tuple[list[Answer], list[int]]:
    """Send requests at random times. Returns the answers, and the gateway's memory before and each second."""
    draw, watched = random.Random(seed), psutil.Process(pid)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for number in range(20):
            await ask(session, port, ("high", "low")[number % 2], draw)
        memory_bytes, tasks = [watched.memory_info().rss], []
        cpu_before_s = sum(watched.cpu_times()[:2])
        started_s = at_s = time.perf_counter()
        while at_s < started_s + seconds:
            await asyncio.sleep(at_s - time.perf_counter())
            tenant = "high" if draw.random() < 0.1 / times else "low"
            tasks.append(asyncio.create_task(ask(session, port, tenant, draw)))
            at_s += draw.expovariate(times / MEAN_S)
            if at_s - started_s > len(memory_bytes):
                memory_bytes.append(watched.memory_info().rss)
        cpu_s = sum(watched.cpu_times()[:2])
        print(f"the gateway used {(cpu_s - cpu_before_s) / seconds:.0%} of a processor")
        return await asyncio.gather(*tasks), memory_bytes


def report(answers: list[Answer], memory_bytes: list[int], seconds: float) -> bool:
    """Print the figures. Returns whether they meet the bars."""
    high = [each for each in answers if each.tenant == "high"]
    refused = sorted((each for each in answers if each.status != 200), key=lambda each: each.took_s)
    in_time = [each for each in answers if each.is_in_time]
    if not high or not refused:
        sys.exit("too little load for these figures: raise --seconds or --times")
    busy = sum(prompt_s(each.num_words) for each in in_time) / seconds
    attainment = sum(each.is_in_time for each in high) / len(high)
    p50_s, p99_s = (refused[int(share * len(refused))].took_s for share in (0.5, 0.99))
    num_slow = sum(each.took_s > MAX_REFUSAL_S for each in refused)
    without = sum(not each.has_retry_after or each.status not in (429, 503) for each in refused)
    late = len(answers) - len(refused) - len(in_time)
    before, most, after = (
        number / 2**20 for number in (memory_bytes[0], max(memory_bytes), memory_bytes[-1])
    )
    print(
        f"{len(answers) / seconds:.1f} requests/s; in time {len(in_time) / seconds:.2f}/s, late "
        f"{late}, refused {len(refused)} ({without} without Retry-After)\n"
        f"goodput: {busy:.1%} of the engine's time, {len(in_time) / seconds * MEAN_S:.1%} of the capacity\n"
        f"highest class: {attainment:.2%} of {len(high)} in time\n"
        f"refusals: p50 {p50_s * 1e3:.1f} ms, p99 {p99_s * 1e3:.1f} ms, most "
        f"{refused[-1].took_s * 1e3:.1f} ms, {num_slow / len(refused):.1%} above 50 ms\n"
        f"memory of the gateway: {before:.1f} MiB before, {most:.1f} at most, {after:.1f} at the end"
    )
    return busy >= 0.9 and attainment >= 0.99 and p99_s <= MAX_REFUSAL_S and not without


async def measure(seconds: float, times: float, seed: int) -> bool:
    async with process("engine") as (engine_port, _), process("gateway", str(engine_port)) as found:
        return report(*await send_all(*found, seconds, times, seed), seconds)


def main() -> None:
    if sys.argv[1:2] == ["engine"]:
        asyncio.run(engine())
    elif sys.argv[1:2] == ["gateway"]:
        asyncio.run(gateway(int(sys.argv[2])))
    else:
        options = option_parser(__doc__, seconds=60.0, times=10.0, seed=0).parse_args()
        print(
            f"seed {options.seed}, {options.times:g} times the capacity for {options.seconds:g} s"
        )
        sys.exit(not asyncio.run(measure(options.seconds, options.times, options.seed)))


if __name__ == "__main__":
    main()
