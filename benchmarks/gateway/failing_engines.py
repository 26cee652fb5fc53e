"""Errors that clients see while one engine of five fails every request at once, and its recovery.

    python -m benchmarks.gateway.failing_engines [--requests 1000] [--clients 32] [--seed 1]

Four healthy engines and a failing one run over real sockets behind the real gateway. The failing one answers
at once with status 500, a TCP reset, status 503, or a stream whose first event is an error. Half of the
clients stream. Then the failing engine recovers, and half as many requests follow once it gets one again.
Bar: at most 2 % of the requests see an error. An engine that fails fast is always the least loaded, so
without ejection most requests would.

Printed for each fault: requests with an error; requests to the failing engine; the smallest and the largest
number of requests to a healthy engine; the time from recovery to the engine's next request, and its share of
the requests after that (an even share is 20 %). --objectives gives the service objectives, so that requests
pass its admission queue.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import aiohttp
from aiohttp import web
from benchmarks.gateway.stand import SETTINGS, chat_service, reset_connection
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.http_server import served
from tests.support.running_gateway import running_gateway

from penstock.clients.machine.clock import monotonic
from penstock.core.routing.pick import Endpoint
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.snapshot import Snapshot

SOUND_ENGINES = 4
FAULTS = ("status 500", "reset", "status 503", "error event")
# Range of a healthy engine's response time, uniform.
LEAST_S, MOST_S = 0.01, 0.03
EVENTS = [b'data: {"choices":[{"delta":{"content":" a"}}]}\n\n'] * 5 + [b"data: [DONE]\n\n"]
WHOLE = b'{"choices":[{"message":{"content":"all of it"}}]}'
ERROR_EVENT = b'data: {"error":{"message":"broken","code":500}}\n\ndata: [DONE]\n\n'
ERROR = {"error": {"message": "broken"}}


@dataclass
class Engine:
    """HTTP server of an engine. fault: one of FAULTS, or None while healthy."""

    name: str
    draw: random.Random
    fault: str | None = None
    requests: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        fields = await request.json()
        self.requests += 1
        if self.fault == "reset":
            return reset_connection(request)
        if self.fault == "error event":
            return web.Response(body=ERROR_EVENT, content_type="text/event-stream")
        if self.fault is not None:
            return web.json_response(ERROR, status=int(self.fault.split()[1]))
        await asyncio.sleep(self.draw.uniform(LEAST_S, MOST_S))
        if not fields["stream"]:
            return web.Response(body=WHOLE, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in EVENTS:
            await response.write(event)
        await response.write_eof()
        return response


@dataclass(frozen=True)
class Outcome:
    """Results for one fault. errors, errors_after: seen by clients during the fault, and after it.
    recovered_s: from the end of the fault to the engine's next request. recovered_share: its fraction of
    the requests after that."""

    fault: str
    requests: int
    errors: int
    errors_after: int
    failed_attempts: int
    sound_requests: tuple[int, ...]
    recovered_s: float
    recovered_share: float


async def measure(
    fault: str, *, requests: int, clients: int, seed: int, objectives: Objectives | None = None
) -> Outcome:
    random.seed(seed)  # random draws of the gateway
    draw = random.Random(seed)
    engines = [Engine(f"engine-{n}", random.Random(seed + n)) for n in range(SOUND_ENGINES + 1)]
    bad = draw.choice(engines)
    sound = [engine for engine in engines if engine is not bad]
    async with _behind_gateway(engines, objectives) as url:
        bad.fault = fault
        errors = await _ask(url, requests, clients, draw)
        failed_attempts, counts = bad.requests, tuple(engine.requests for engine in sound)
        bad.fault, began_s, errors_after = None, monotonic(), 0
        while bad.requests == failed_attempts:
            errors_after += await _ask(url, clients, clients, draw)
        recovered_s, before = monotonic() - began_s, bad.requests
        errors_after += await _ask(url, requests // 2, clients, draw)
        share = (bad.requests - before) / (requests // 2)
    return Outcome(
        fault, requests, errors, errors_after, failed_attempts, counts, recovered_s, share
    )


@contextlib.asynccontextmanager
async def _behind_gateway(
    engines: list[Engine], objectives: Objectives | None
) -> AsyncIterator[str]:
    async with contextlib.AsyncExitStack() as stack:
        endpoints = []
        for engine in engines:
            app = web.Application()
            app.router.add_post("/v1/chat/completions", engine.answer)
            address = await stack.enter_async_context(served(app))
            endpoints.append(Endpoint(f"default/{engine.name}", address, "r1"))
        service = chat_service(*endpoints, objectives=objectives)
        running = running_gateway(Snapshot((service,)), replace(SETTINGS, access_log=True))
        _, servers = await stack.enter_async_context(running)
        yield f"http://127.0.0.1:{servers.clients.port}/v1/chat/completions"


async def _ask(url: str, requests: int, clients: int, draw: random.Random) -> int:
    """Send the requests, half of them streams. Returns how many ended with an error."""
    are_streams = [draw.random() < 0.5 for _ in range(requests)]

    async def has_failed(is_stream: bool) -> bool:
        fields = {"model": "chat", "stream": is_stream, "messages": [{"content": "Hi"}]}
        async with session.post(url, json=fields) as got:
            return b'"error"' in await got.read() or got.status != 200

    async with aiohttp.ClientSession() as session:
        return sum(await closed_loop(clients, are_streams, has_failed))


async def main() -> None:
    parser = option_parser(__doc__, requests=1000, clients=32, seed=1, objectives=False)
    chosen = parser.parse_args()
    objectives = Objectives(1.0, 0.1) if chosen.objectives else None
    print("| fault | saw an error | given to the failing engine | sound engines | recovered |")
    print("| --- | --- | --- | --- | --- |")
    for fault in FAULTS:
        found = await measure(
            fault, requests=chosen.requests, clients=chosen.clients, seed=chosen.seed,
            objectives=objectives,
        )  # fmt: skip
        print(
            f"| {fault} | {found.errors} of {found.requests} | {found.failed_attempts} "
            f"| {min(found.sound_requests)} to {max(found.sound_requests)} "
            f"| after {found.recovered_s:.1f} s, {found.recovered_share:.1%}, "
            f"{found.errors_after} errors |"
        )


if __name__ == "__main__":
    asyncio.run(main())
