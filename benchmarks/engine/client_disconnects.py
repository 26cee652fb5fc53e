"""Measures how soon an engine frees everything of clients that disconnect in each phase of a request.

    python -m benchmarks.engine.client_disconnects [--clients 2000] [--group 10]

It runs a real engine with a small random model. Groups of clients reach a phase (queued, prefill, decode,
unread stream), then close all connections at once. Exits with 1 if their blocks and slots are not free within
LIMIT_S, or if the engine's memory has grown.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
from benchmarks.engine.real_engine import engine
from benchmarks.options import option_parser
from prometheus_client.parser import text_string_to_metric_families

LIMIT_S = 0.25
POLL_S = 0.002
PHASE_TIMEOUT_S = 60
MAX_NUM_SEQS = 10
# Bytes. Above the noise of pages and allocators; a leak of one block table per client would exceed it.
MAX_GROWTH_BYTES = 24 * 2**20

GAUGES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv",
    "penstock:prefill_tokens_pending": "pending",
}

State = dict[str, float]
LONG: dict[str, Any] = {
    "prompt": "The engine", "max_tokens": 1900, "ignore_eos": True, "stream": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phase:
    """Phase of a request. reached: whether the engine's state shows a group of this size in the phase."""

    name: str
    body: Callable[[int], dict[str, Any]]
    reached: Callable[[State, int], bool]
    holds_engine: bool = False
    reads: bool = False


PHASES = (
    Phase(
        "queued",
        lambda number: LONG,
        lambda state, size: state["waiting"] == size,
        holds_engine=True,
    ),
    Phase(
        "prefill",
        lambda number: LONG | {"prompt": [3 + number % 50] * 1000, "max_tokens": 9},
        lambda state, size: state["running"] > 0 and state["pending"] > 0,
    ),
    Phase("decode", lambda number: LONG, lambda state, size: True, reads=True),
    Phase(
        "back-pressure",
        lambda number: LONG,
        lambda state, size: state["running"] == size and state["pending"] == 0,
    ),
)


class Engine:
    def __init__(self, base_url: str, process: psutil.Process) -> None:
        self.http = httpx.AsyncClient(base_url=base_url, timeout=30)
        self.process = process
        self.port = int(base_url.rpartition(":")[2])

    async def state(self) -> State:
        text = (await self.http.get("/metrics")).text
        families = text_string_to_metric_families(text)
        return {GAUGES[f.name]: f.samples[0].value for f in families if f.name in GAUGES}

    async def wait_until(self, condition: Callable[[State], bool]) -> float:
        """Seconds until the state meets the condition. Raises TimeoutError."""
        started_s = time.monotonic()
        while not condition(await self.state()):
            if time.monotonic() - started_s > PHASE_TIMEOUT_S:
                raise TimeoutError(f"never so: {await self.state()}")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - started_s

    async def connect(self, body: dict[str, Any], *, reads: bool) -> asyncio.StreamWriter:
        """Send a request and wait for the start of its answer, if it is read."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        raw = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
        writer.write(head.encode() + raw)
        await writer.drain()
        if reads:
            await reader.readuntil(b"data: ")
        return writer


@asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    flags = (
        "--max-model-len", "2048", "--max-num-seqs", str(MAX_NUM_SEQS), "--max-num-batched-tokens", "32",
        "--num-gpu-blocks-override", "3000", "--no-enable-prefix-caching", "--no-enable-log-requests",
    )  # fmt: skip
    with engine(*flags) as (url, process):
        running = Engine(url, process)
        try:
            yield running
        finally:
            await running.http.aclose()


@dataclass(slots=True)
class Outcome:
    """Result. seconds: by phase, from the last closed connection until the engine is free of the group."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    growth_bytes: int = 0

    @property
    def is_good(self) -> bool:
        slowest_s = max(max(times) for times in self.seconds.values())
        return slowest_s <= LIMIT_S and self.growth_bytes <= MAX_GROWTH_BYTES


async def campaign(num_clients: int, group: int) -> Outcome:
    outcome = Outcome()
    rounds = -(-num_clients // (group * len(PHASES)))
    async with running_engine() as running:
        for turn in range(rounds):
            for phase in PHASES:
                seconds = await leave(running, phase, group)
                outcome.seconds.setdefault(phase.name, []).append(seconds)
            if turn == rounds // 10:  # caches and allocators are warm after the first groups
                before_bytes = running.process.memory_info().rss
        outcome.growth_bytes = running.process.memory_info().rss - before_bytes
    return outcome


async def leave(running: Engine, phase: Phase, group: int) -> float:
    """Disconnect a group. Returns the seconds until the engine is free of it."""
    num_held = MAX_NUM_SEQS if phase.holds_engine else 0
    holders = [await running.connect(LONG, reads=True) for _ in range(num_held)]
    try:
        clients = [
            await running.connect(phase.body(number), reads=phase.reads) for number in range(group)
        ]
        await running.wait_until(lambda state: phase.reached(state, group))
        for client in clients:
            client.close()
        return await running.wait_until(
            lambda state: state["waiting"] == 0 and state["running"] <= num_held
            and (num_held > 0 or state["kv"] == state["pending"] == 0)
        )  # fmt: skip
    finally:
        for holder in holders:
            holder.close()
        await running.wait_until(lambda state: state["running"] == state["kv"] == 0)


def main() -> None:
    parser = option_parser(__doc__, clients=2000, group=10)
    args = parser.parse_args()
    if args.group > MAX_NUM_SEQS:
        parser.error(f"a group has at most {MAX_NUM_SEQS} clients")
    outcome = asyncio.run(campaign(args.clients, args.group))
    for name, seconds in outcome.seconds.items():
        ordered = sorted(seconds)
        print(
            f"{name}: {len(ordered) * args.group} clients in groups of {args.group}, free after "
            f"{ordered[len(ordered) // 2] * 1e3:.0f} ms (median), {ordered[-1] * 1e3:.0f} ms (most)"
        )
    print(f"memory: {outcome.growth_bytes / 2**20:+.1f} MiB")
    sys.exit(0 if outcome.is_good else 1)


if __name__ == "__main__":
    main()
