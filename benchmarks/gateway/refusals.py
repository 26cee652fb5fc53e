"""Sends bad requests of tenants to a gateway, beside the good ones of a neighbor.

    python -m benchmarks.gateway.refusals [--rounds 5] [--clients 8]

All requests of benchmarks/gateway/bad_requests.py go, `--clients` at a time, to a real gateway process with
tenants and an engine. A neighbor meanwhile sends good requests with its key, one after the other. In turn
with this it does so alone, and beside as many good requests of the other tenant. Exits with 1 if a bad
request gets another status than expected, no sentence, or an error in another form than its API's, if a good
one fails, or if the neighbor's 99th percentile beside bad requests is more than 20 ms above that beside good
ones.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from benchmarks.gateway.bad_requests import bad_requests
from benchmarks.gateway.tenant_requests import (
    CALLER,
    CHAT,
    EXPIRED_KEYS,
    GOOD_BODY,
    HIDDEN_MODEL,
    KEYS,
    MODEL,
    NEIGHBOR,
    OTHER,
    TENANTS,
    UNKNOWN,
    BadRequest,
)
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.background import background
from tests.support.gateway_callers import bearer, let_in
from tests.support.http_server import served
from tests.support.running_gateway import running_gateway

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.tenants.api_key import ApiKey
from penstock.gateway.app import Gateway
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot

ANSWER_TIMEOUT_S = 30.0
# For how long the neighbor is alone in each round.
ALONE_S = 3.0
JSON_TYPE = {"Content-Type": "application/json"}
MAX_DELAY_S = 0.02
# The neighbor's pause between two requests, so that it does not load the machine itself.
PAUSE_S = 0.005
# At least three words, which tell a person something.
SENTENCE = re.compile(r"\S+ \S+ \S+")


@dataclass
class Times:
    """Times of the neighbor's answers, in seconds, and the statuses that are not 200."""

    alone: list[float] = field(default_factory=list)
    beside_good: list[float] = field(default_factory=list)
    beside_bad: list[float] = field(default_factory=list)
    failed: Counter[int] = field(default_factory=Counter)


def services(engine_address: str) -> tuple[Service, ...]:
    """A service of the caller and its neighbor, and one of another tenant."""

    def service(namespace: str, name: str) -> Service:
        endpoint = Endpoint(f"{namespace}/{name}-0", engine_address, "r1")
        return Service(namespace, name, name, 0, {Side("r1"): 100}, (endpoint,))

    return service("default", MODEL), service("elsewhere", HIDDEN_MODEL)


def give_tenants(gateway: Gateway) -> None:
    """Give a gateway all tenants of bad requests, and their keys."""
    let_in(gateway, *TENANTS, keys=KEYS, expired=EXPIRED_KEYS)


async def send(host: str, port: int, bad: BadRequest) -> str:
    """Send a request. Returns what is wrong with its answer; empty if nothing is."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with suppress(ConnectionError):
                writer.write(bad.data)
                await writer.drain()
            answer = bytearray()
            with suppress(ConnectionError):
                while piece := await reader.read(65_536):
                    answer += piece
    except TimeoutError:
        return f"{bad.kind}, {bad.name}: no answer"
    finally:
        writer.close()
    wrong = wrong_answer(bad, bytes(answer))
    return wrong and f"{bad.kind}, {bad.name}: {wrong}"


def wrong_answer(bad: BadRequest, answer: bytes) -> str:
    """Return what is wrong with an answer; empty if nothing is."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head:
        return "the connection was closed without an answer"
    status = int(head.split()[1])
    if status not in bad.statuses:
        return f"{status} is none of {sorted(bad.statuses)}: {body[:200]!r}"
    try:
        told = json.loads(body)
        error = told["error"]
        message = error["message"]
    except (ValueError, KeyError, TypeError):
        return f"{body[:200]!r} is not an error in JSON"
    is_anthropic = told.keys() == {"type", "error"} and error.keys() == {"type", "message"}
    is_openai = told.keys() == {"error"} and error.keys() == {"message", "type", "param", "code"}
    if not (is_anthropic if bad.form == "Anthropic" else is_openai):
        return f"{told} is not in the form of {bad.form}"
    if not SENTENCE.search(message) or bad.says not in message or len(message) > 1000:
        return f"{message[:300]!r} does not say what is wrong"
    if any(key.secret in message for key in (CALLER, OTHER, UNKNOWN)):
        return f"{message!r} repeats a key"
    may_name = any(each.encode() in bad.data for each in (HIDDEN_MODEL, OTHER.text))
    if HIDDEN_MODEL in message and not may_name:
        return f"{message!r} names another tenant's model"
    return ""


async def ask(session: aiohttp.ClientSession, url: str, key: ApiKey, times: Times) -> float:
    """Send a good request. Returns the seconds until its answer."""
    started_s = time.monotonic()
    async with session.post(url + CHAT, data=GOOD_BODY, headers=bearer(key) | JSON_TYPE) as got:
        await got.read()
    if got.status != 200:
        times.failed[got.status] += 1
    return time.monotonic() - started_s


async def campaign(
    host: str, port: int, times: Times, *, rounds: int, clients: int, alone_s: float = ALONE_S
) -> list[str]:
    """Send all bad requests in each round. Returns what was wrong with answers."""
    wrong: list[str] = []
    url, bad = f"http://{host}:{port}", bad_requests()
    async with aiohttp.ClientSession() as session:

        async def neighbor(into: list[float]) -> None:
            while True:
                into.append(await ask(session, url, NEIGHBOR, times))
                await asyncio.sleep(PAUSE_S)

        async def send_good() -> None:
            await closed_loop(clients, bad, lambda _: ask(session, url, CALLER, times))

        async def send_bad() -> None:
            found = await closed_loop(clients, bad, lambda each: send(host, port, each))
            wrong.extend(filter(None, found))

        for _ in range(rounds):
            async with background(neighbor(times.alone)):
                await asyncio.sleep(alone_s)
            async with background(neighbor(times.beside_good)):
                await send_good()
            async with background(neighbor(times.beside_bad)):
                await send_bad()
    return wrong


async def answer(_: web.Request) -> web.Response:
    """An engine's answer, at once."""
    return web.json_response({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})


async def serve_gateway(engine_address: str) -> None:
    """Serve the real gateway with its tenants until it is killed."""
    settings = GatewaySettings(host="127.0.0.1", port=0, management_port=0)
    async with running_gateway(Snapshot(services(engine_address)), settings) as (made, servers):
        give_tenants(made)
        print(servers.clients.port, flush=True)
        await asyncio.Event().wait()


async def measure(options: argparse.Namespace) -> tuple[Times, list[str]]:
    """Run the campaign against a gateway process."""
    app, times = web.Application(), Times()
    app.router.add_post("/{path:.*}", answer)
    async with served(app) as address:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.gateway.refusals", "--engine", address,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert child.stdout is not None
        try:
            port = int(await child.stdout.readline())
            wrong = await campaign(
                "127.0.0.1", port, times, rounds=options.rounds, clients=options.clients
            )
        finally:
            child.kill()
            await child.wait()
    return times, wrong


def quantile_ms(seconds: list[float], share: float) -> float:
    """A quantile of times, in milliseconds."""
    return 1000 * sorted(seconds)[int(share * (len(seconds) - 1))]


def main() -> None:
    parser = option_parser(__doc__, rounds=5, clients=8)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        asyncio.run(serve_gateway(options.engine))
        return
    times, wrong = asyncio.run(measure(options))
    for kind, count in Counter(bad.kind for bad in bad_requests()).items():
        print(f"{kind:16} {count:4}")
    print(*sorted(set(wrong)), f"{len(wrong)} answers are wrong", sep="\n")
    print(f"good requests that failed: {dict(times.failed)}")
    phases = {
        "alone": times.alone,
        "beside good": times.beside_good,
        "beside bad": times.beside_bad,
    }
    for name, taken in phases.items():
        p50, p99 = quantile_ms(taken, 0.5), quantile_ms(taken, 0.99)
        print(f"neighbor {name:12} {len(taken):6} requests, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    delay_ms = quantile_ms(times.beside_bad, 0.99) - quantile_ms(times.beside_good, 0.99)
    if wrong or times.failed or delay_ms > 1000 * MAX_DELAY_S:
        sys.exit("a bar is missed")


if __name__ == "__main__":
    main()
