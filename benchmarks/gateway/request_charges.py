"""Compares the charges for every ending of a request with the table of `core/routing/charge.py`.

    python -m benchmarks.gateway.request_charges [--requests 10000] [--canaries 200] [--seed 1]

Requests go over real sockets through the real gateway. First part: requests that end in each of ENDINGS. Bar:
the counts of the service, the errors of its engines and their suspicion are those of the table. Second part:
canaries that equal their control, under a user of the canary's side who sends nothing but bad requests and
requests for empty answers. Bar: the judge aborts none. Exits with 1 if a bar is missed.
"""

import asyncio
import contextlib
import json
import logging
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import aiohttp
from aiohttp import web
from benchmarks.gateway.stand import SETTINGS, chat_service, reset_connection
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.http_server import served
from tests.support.running_gateway import running_gateway

from penstock.core.canary.arm import Arm
from penstock.core.canary.evidence import Block
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.verdict import Abort
from penstock.core.routing.charge import CHARGES, Ending
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.route import RouteRule
from penstock.core.spec.canary import CanarySpec
from penstock.gateway.app import Gateway
from penstock.gateway.snapshots.snapshot import Route, Snapshot

ENDINGS = (
    Ending.ANSWERED, Ending.REFUSED, Ending.UNSUPPORTED, Ending.UNAVAILABLE, Ending.ERROR, Ending.RESET,
    Ending.INVALID, Ending.NO_FIRST_BYTE, Ending.SILENT, Ending.TRUNCATED, Ending.ERROR_EVENT,
    Ending.TOTAL_TIMEOUT, Ending.ROUTE_TIMEOUT, Ending.CLIENT_LEFT, Ending.CONNECT, Ending.NO_ENGINE,
)  # fmt: skip
STATUSES = {
    Ending.REFUSED: 400, Ending.UNSUPPORTED: 501, Ending.UNAVAILABLE: 503, Ending.ERROR: 500,
}  # fmt: skip
# Prompt of a request whose answer has no text.
EMPTY = "empty"
# Endings that a client can cause in order to harm a canary that is as good as its control.
BAD = (Ending.REFUSED, Ending.UNSUPPORTED, Ending.ERROR, Ending.RESET, Ending.INVALID, EMPTY)
EVENT = b'data: {"choices":[{"delta":{"content":" a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR_EVENT = b'data: {"error":{"message":"broken","code":500}}\n\n'
CLIENTS = 32
# Time limit of what shall time out, s, and of the client that leaves.
LIMIT_S = 0.1
# Total time limit of a stream that never ends, s; its first byte comes long before, on a busy machine too.
TOTAL_LIMIT_S = 2.0
NO_LIMIT_S = 60.0


@dataclass
class Engine:
    """HTTP server of an engine, which ends each request as its prompt says. seen: ids of its requests."""

    endpoint: Endpoint
    seen: set[str] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        prompt = (await request.json())["prompt"]
        self.seen.add(request.headers["x-request-id"])
        if prompt == EMPTY:
            return web.json_response({"choices": [{"text": ""}]})
        ending = Ending(prompt)
        if ending in STATUSES:
            return web.json_response({"error": {"message": "no"}}, status=STATUSES[ending])
        if ending is Ending.RESET:
            return reset_connection(request)
        if ending is Ending.INVALID:
            return web.Response(headers={"x-large": "a" * 20_000})
        if ending in (Ending.NO_FIRST_BYTE, Ending.ROUTE_TIMEOUT, Ending.CLIENT_LEFT):
            await asyncio.sleep(NO_LIMIT_S)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENT)
        if ending is Ending.SILENT:
            await asyncio.sleep(NO_LIMIT_S)
        while ending is Ending.TOTAL_TIMEOUT:
            await response.write(EVENT)
            await asyncio.sleep(LIMIT_S / 10)
        if ending in (Ending.TRUNCATED, Ending.ERROR_EVENT):
            await asyncio.sleep(LIMIT_S)  # so that the gateway has read the first event
        if ending is Ending.TRUNCATED:
            return reset_connection(request)
        await response.write((ERROR_EVENT if ending is Ending.ERROR_EVENT else b"") + DONE)
        return response


@dataclass(frozen=True)
class Bench:
    """A gateway in front of engines. url: of completions."""

    gateway: Gateway
    engines: list[Engine]
    url: str

    async def ask(self, session: aiohttp.ClientSession, prompt: str, user: str = "") -> None:
        """Send a request that is to end as its prompt says, and read whatever comes."""
        limit_s = LIMIT_S if prompt == Ending.CLIENT_LEFT else NO_LIMIT_S
        fields = {"model": "chat", "stream": prompt != EMPTY, "prompt": prompt, "user": user}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s), session.post(self.url, json=fields) as got:
                await got.read()

    async def idle(self) -> None:
        while self.gateway.state.cancel_scopes:  # noqa: ASYNC110 - the gateway has no event for it
            await asyncio.sleep(0.01)

    @property
    def arms(self) -> dict[str, Arm]:
        return self.gateway.state.stats.get("default/chat").arms()


@contextlib.asynccontextmanager
async def _bench(revisions: list[str], ending: Ending | None = None) -> AsyncIterator[Bench]:
    """Run a gateway in front of one engine for each entry of `revisions`. ending: sets its limits."""
    async with contextlib.AsyncExitStack() as stack:
        engines = [await _start(stack, n, revision) for n, revision in enumerate(revisions)]
        endpoints = [engine.endpoint for engine in engines]
        if ending is Ending.CONNECT:
            endpoints = [replace(each, address="127.0.0.1:1") for each in endpoints]
        if ending is Ending.NO_ENGINE:
            endpoints = []
        settings = replace(
            SETTINGS, first_byte_timeout_s=LIMIT_S if ending is Ending.NO_FIRST_BYTE else NO_LIMIT_S,
            between_chunks_timeout_s=LIMIT_S if ending is Ending.SILENT else NO_LIMIT_S,
            total_timeout_s=TOTAL_LIMIT_S if ending is Ending.TOTAL_TIMEOUT else NO_LIMIT_S,
            wait_for_endpoint_s=LIMIT_S, min_retries=10 * CLIENTS,
        )  # fmt: skip
        sides = {endpoint.pod: endpoint.side for endpoint in endpoints}
        service = chat_service(*endpoints, affinity="User", sides=sides)
        rule = RouteRule((), (("chat", 1),), timeout_s=LIMIT_S)
        routes = (Route("default", "chat", "chat", 0, (rule,)),)
        snapshot = Snapshot((service,), routes if ending is Ending.ROUTE_TIMEOUT else ())
        gateway, servers = await stack.enter_async_context(running_gateway(snapshot, settings))
        yield Bench(gateway, engines, f"http://127.0.0.1:{servers.clients.port}/v1/completions")


async def _start(stack: contextlib.AsyncExitStack, number: int, revision: str) -> Engine:
    """Start an engine that runs until the stack is closed."""
    app = web.Application()
    engine = Engine(Endpoint(f"default/{number}", "", revision))
    app.router.add_post("/v1/completions", engine.answer)
    address = await stack.enter_async_context(served(app))
    engine.endpoint = replace(engine.endpoint, address=address)
    return engine


async def measure(ending: Ending, requests: int) -> tuple[str, str]:
    """End requests in one way. Returns what the gateway counted, and what the table says, as text."""
    async with _bench(["r1"] * 4, ending) as bench:
        async with aiohttp.ClientSession() as session:
            await closed_loop(CLIENTS, range(requests), lambda _: bench.ask(session, ending))
        await bench.idle()
        stats, charge = bench.gateway.state.stats.get("default/chat"), CHARGES[ending]
        counted = {
            "Ended": stats.ended, "Failed": stats.failed, "Shed": stats.shed,
            "errors": sum(arm.errors for arm in bench.arms.values()),
            "suspected": bool(bench.gateway.state.endpoints.suspects),
        }  # fmt: skip
        # A request that is not retried charges one engine, another one each engine that got or refused it.
        tried = requests
        if charge.retry != "Never":
            tried = sum(len(engine.seen) for engine in bench.engines) or 4 * requests
        expected = {
            name: requests if charge.service == name else 0 for name in ("Ended", "Failed", "Shed")
        } | {
            "errors": 0 if charge.revision == "Never" else tried,
            "suspected": charge.engine is not None,
        }
        return json.dumps(counted), json.dumps(expected)


async def is_aborted(seed: int, bad: int, good: int) -> bool:
    """Whether a canary as good as its control is aborted, because a user of its side sends bad requests."""
    random.seed(seed)  # random draws of the gateway
    draw = random.Random(seed)
    async with _bench(["r1", "r1", "r2", "r2"]) as bench, aiohttp.ClientSession() as session:
        user = await _user_of_the_canary(bench, session)
        kinds: list[tuple[str, str]] = [(draw.choice(BAD), user) for _ in range(bad)]
        kinds += [(Ending.ANSWERED, f"good-{draw.randrange(1000)}") for _ in range(good)]
        draw.shuffle(kinds)
        for prompt, who in kinds:
            await bench.ask(session, prompt, who)
        await bench.idle()
        canary, control = (
            _sum([bench.arms[e.endpoint.pod] for e in bench.engines
                  if e.endpoint.revision == revision and e.endpoint.pod in bench.arms])
            for revision in ("r2", "r1")
        )  # fmt: skip
        spec = CanarySpec()
        verdict, _ = judge(
            spec, JudgeState.begin(spec), Block(length_s=10.0, canary=canary, control=control)
        )
        return isinstance(verdict, Abort)


async def _user_of_the_canary(bench: Bench, session: aiohttp.ClientSession) -> str:
    """Find a user whose requests go to the canary."""
    canary = [engine for engine in bench.engines if engine.endpoint.revision == "r2"]
    for number in range(100):
        await bench.ask(session, Ending.ANSWERED, f"bad-{number}")
        if any(engine.seen for engine in canary):
            return f"bad-{number}"
    raise AssertionError("no user of 100 is the canary's")


def _sum(arms: list[Arm]) -> Arm:
    total = arms[0]
    for arm in arms[1:]:
        total = total.plus(arm)
    return total


async def main() -> int:
    chosen = option_parser(__doc__, requests=10_000, canaries=200, seed=1).parse_args()
    logging.disable()  # engines that break off on purpose log an error each time
    is_missed = False
    print("| ending | counted | expected |")
    print("| --- | --- | --- |")
    for ending in ENDINGS:
        counted, expected = await measure(ending, chosen.requests // len(ENDINGS))
        is_missed = is_missed or counted != expected
        print(f"| {ending} | {counted} | {'the same' if counted == expected else expected} |")
    aborted = [
        await is_aborted(chosen.seed + number, bad=40, good=40) for number in range(chosen.canaries)
    ]
    print(f"\n{sum(aborted)} of {len(aborted)} canaries as good as their control were aborted")
    return 1 if is_missed or any(aborted) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
