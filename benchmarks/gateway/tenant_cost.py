"""Measures what tenants' keys and limits cost a gateway for each request, beside other proxies.

    python -m benchmarks.gateway.tenant_cost [--seconds 12] [--clients 16] [--chunks 50]
        [--litellm PYTHON] [--stack-router PYTHON] [--vllm-router PYTHON]

Proxies are processes before one trivial engine; this process is the client. They are measured in turns, so
that noise of the machine affects all of them. Ours: without tenants, with 10 tenants of 10 keys and three
limits each, and the same with a real server of Redis as their store. Others, with the Python of an
environment that has them: LiteLLM's proxy (litellm[proxy]) with a key that has limits, the router of vLLM's
production stack, and vllm-router. Printed are the processor time of a proxy's process for a request, and
latencies. Bars: with keys and limits 0.6 ms for a whole answer, and 1.0 ms for a stream of 50 events.
"""

import argparse
import asyncio
import gc
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil
import uvicorn
from benchmarks.gateway.overhead import DONE, describe, process, snapshot
from benchmarks.gateway.proxies import Proxy, proxies
from benchmarks.gateway.stand import DEFAULTS
from benchmarks.gateway.tenant_fleet import make_tenants, quota_store
from benchmarks.http_load import closed_loop, for_seconds
from benchmarks.options import option_parser
from tests.support.running_gateway import open_to_all, running_gateway
from tests.support.tools.redis_process import redis_process

MODULE = "benchmarks.gateway.tenant_cost"
ROUNDS = 6
# Bars, in ms of processor time for a request.
WHOLE_BAR_MS, STREAM_BAR_MS = 0.6, 1.0


@dataclass
class Measurement:
    """Latencies and processor time of one proxy's requests."""

    proxy: Proxy
    took_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def cpu_ms(self) -> float:
        """Processor time for a request."""
        return self.cpu_s / len(self.took_s) * 1e3


async def gateway(has_tenants: bool, engine_port: int, store_url: str) -> None:
    """Serve the real gateway with a fixed fleet, with or without tenants."""
    gc.freeze()  # as the gateway command does after its imports
    publish = make_tenants().publish if has_tenants else open_to_all
    fixed = snapshot(engine_port, engine_port, engine_port)
    async with running_gateway(fixed, DEFAULTS, publish, quota_store(store_url)) as (_, servers):
        print(servers.clients.port, flush=True)
        await asyncio.Event().wait()


async def ask(session: aiohttp.ClientSession, proxy: Proxy, key: str, stream: bool) -> float:
    """Send a request. Returns its latency in seconds."""
    body = {
        "model": "plain", "stream": stream, "max_tokens": 64,
        "messages": [{"role": "user", "content": "x" * 400}],
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {key}"}
    url = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
    began_s = time.perf_counter()
    async with session.post(url, json=body, headers=headers) as got:
        text = await got.read()
    assert got.status == 200, text
    assert text.endswith(DONE) if stream else json.loads(text)["choices"]
    return time.perf_counter() - began_s


async def measure(each: Measurement, seconds: float, clients: int, stream: bool) -> None:
    """Add one turn of a proxy."""
    root = psutil.Process(each.proxy.pid)
    watched = [root, *root.children(recursive=True)]

    def cpu_s() -> float:
        return sum(sum(one.cpu_times()[:2]) for one in watched)

    keys = itertools.cycle(each.proxy.keys)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await ask(session, each.proxy, next(keys), stream)
        before_s = cpu_s()
        each.took_s += await closed_loop(
            clients,
            for_seconds(seconds),
            lambda _: ask(session, each.proxy, next(keys), stream),
        )
        each.cpu_s += cpu_s() - before_s


@asynccontextmanager
async def all_proxies(options: argparse.Namespace, folder: Path) -> AsyncIterator[list[Proxy]]:
    """Start the engine, the store and all proxies."""
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        engine_port, _ = await start(process("engine", str(options.chunks), "0", "0"))
        redis = stack.enter_context(redis_process(folder))
        keys = make_tenants().keys
        found = []
        for name, role in {
            "no tenants": ("open", ""),
            "keys, limits": ("tenants", ""),
            "with Redis": ("tenants", redis.url),
        }.items():
            arguments = "gateway", role[0], str(engine_port), role[1]
            port, pid = await start(process(*arguments, module=MODULE))
            found.append(Proxy(name, port, pid, keys))
        others = proxies(options, engine_port, folder, redis.port)
        yield found + [await start(other) for other in others]


async def compare(options: argparse.Namespace, *, stream: bool) -> bool:
    """Measure and print. Returns whether the bar is met."""
    with tempfile.TemporaryDirectory() as folder:
        async with all_proxies(options, Path(folder)) as found:
            measured = [Measurement(each) for each in found]
            for _ in range(ROUNDS):
                for each in measured:
                    await measure(each, options.seconds / ROUNDS, options.clients, stream)
    kind = f"streams of {options.chunks} events" if stream else "whole answers"
    print(f"\n{kind}, {options.clients} clients")
    for each in measured:
        line = describe(each.proxy.name, each.took_s, options.seconds)
        print(f"{line}   CPU {each.cpu_ms:.2f} ms", flush=True)
    bar_ms = STREAM_BAR_MS if stream else WHOLE_BAR_MS
    return all(each.cpu_ms <= bar_ms for each in measured[:3])


def main() -> None:
    if sys.argv[1:2] == ["gateway"]:
        has_tenants, port, url = sys.argv[2] == "tenants", int(sys.argv[3]), sys.argv[4]
        with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
            runner.run(gateway(has_tenants, port, url))
        return
    options = option_parser(
        __doc__, seconds=12.0, clients=16, chunks=50, litellm="", stack_router="", vllm_router=""
    ).parse_args()
    met = [asyncio.run(compare(options, stream=stream)) for stream in (False, True)]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
