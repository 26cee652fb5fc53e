"""Requests that others lose while one party fills a limit of the gateway, and probes meanwhile.

    python -m benchmarks.gateway.limits [--requests 200]

The real gateway runs over real sockets with fake engines. One party fills a limit and keeps it full:
clients that upload slowly or do not read their answers, services of one namespace whose engines hang or are
absent, a mirror that hangs, or an adapter whose load hangs. Each limit has its default, and then 1. Meanwhile
others send --requests requests to a healthy service of another namespace, small ones and ones of 100 KB, and
probes go to the management port.
Bar: with the defaults at most 1 % of the others' requests are lost. With every value all probes are answered,
and no request gets a 500. Exits with 1 where a bar is missed.
"""

import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.gateway.stand import PATH, SETTINGS, Stand, gateway_stand
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser

from penstock.gateway.http.open_files import fit_connections
from penstock.gateway.settings import GatewaySettings

MAX_LOST = 0.01
PROBES = ("/healthz", "/readyz", "/metrics", "/penstock/feed")
# Concurrent requests of the others.
OTHERS = 8
PADDINGS = (10, 100_000)


Fill = Callable[[Stand, contextlib.AsyncExitStack], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """A limit, its value (None: the default), who fills it, and how."""

    limit: str
    value: int | None
    party: str
    fill: Fill


@dataclass
class Outcome:
    """Answers to the others' requests and probes, by status; 0: no answer.

    num_refused: requests and copies that the gateway refused, of the party that fills the limit or of others.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    probes: int = 0
    probes_lost: int = 0
    num_refused: int = 0

    @property
    def lost(self) -> float:
        """Fraction of the requests without status 200."""
        return 1 - self.statuses[200] / self.statuses.total()

    def meets_bar(self, case: Case) -> bool:
        is_served = case.value is not None or self.lost <= MAX_LOST
        return is_served and not self.probes_lost and not self.statuses[500]


def requests_of(model: str, number: Callable[[GatewaySettings], int], body_bytes: int = 50) -> Fill:
    """Fill by complete requests to a model, whose answers are not read."""

    async def fill(stand: Stand, stack: contextlib.AsyncExitStack) -> None:
        body = json.dumps({"model": model, "stream": True, "x": "y" * body_bytes}).encode()
        for _ in range(number(stand.settings)):
            await _send(stand, stack, _post(len(body)) + body)

    return fill


def lists_of_models(number: Callable[[GatewaySettings], int]) -> Fill:
    """Fill by requests that the gateway answers itself, with more than it can send unread."""

    async def fill(stand: Stand, stack: contextlib.AsyncExitStack) -> None:
        for _ in range(number(stand.settings)):
            await _send(stand, stack, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")

    return fill


def slow_uploads(number: Callable[[GatewaySettings], int], body_bytes: int) -> Fill:
    """Fill by requests that end 100 bytes before the end of their body."""

    async def fill(stand: Stand, stack: contextlib.AsyncExitStack) -> None:
        for _ in range(number(stand.settings)):
            await _send(stand, stack, _post(body_bytes) + b" " * (body_bytes - 100))

    return fill


def copies(number: int, body_bytes: int) -> Fill:
    """Fill by copies of requests to a service that hangs."""

    async def fill(stand: Stand, _: contextlib.AsyncExitStack) -> None:
        for _ in range(number):
            await stand.ask("copied", body_bytes)

    return fill


def both(first: Fill, second: Fill) -> Fill:
    """Fill in two ways, one after the other."""

    async def fill(stand: Stand, stack: contextlib.AsyncExitStack) -> None:
        await first(stand, stack)
        await second(stand, stack)

    return fill


def _post(length: int) -> bytes:
    """The head of a request to the engines. length: of its body, in bytes."""
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (PATH.encode(), length)


async def _send(stand: Stand, stack: contextlib.AsyncExitStack, request: bytes) -> None:
    """Send bytes on a connection of its own, which the stack closes. Of the answer little is read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    with contextlib.suppress(ConnectionError):  # refused at the limit
        address = "127.0.0.1", stand.servers.clients.port
        await asyncio.get_running_loop().sock_connect(client, address)
        _, writer = await asyncio.open_connection(sock=client, limit=1 << 10)
        stack.push_async_callback(_abort, writer)
        writer.write(request)
        async with asyncio.timeout(5):
            await writer.drain()


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def connections(settings: GatewaySettings) -> int:
    """All connections, and some more."""
    return settings.max_connections + 4


def half(number: Callable[[GatewaySettings], int]) -> Callable[[GatewaySettings], int]:
    """Half of a number, and one more."""
    return lambda settings: number(settings) // 2 + 1


def cases(values: Mapping[str, int | None]) -> list[Case]:
    """All cases. values: of the limits that do not have their default."""

    def bodies(settings: GatewaySettings) -> int:
        return min(64, settings.max_held_body_bytes // large + 1)

    large = values.get("body_bytes") or (4 << 20) - 150
    hangs, hangs_too = (requests_of(name, half(connections)) for name in ("hangs", "hangs-too"))
    empty, empty_too = (requests_of(name, half(bodies), large) for name in ("empty", "empty-too"))
    fills: list[tuple[str, str, Fill]] = [
        ("max_connections", "a service that hangs", requests_of("hangs", connections)),
        ("max_connections", "slow uploads", slow_uploads(connections, 1000)),
        ("max_connections", "two services that hang", both(hangs, hangs_too)),
        ("max_connections", "a service and slow uploads", both(hangs, slow_uploads(half(connections), 1000))),
        ("max_connections", "clients that do not read", requests_of("floods", lambda _: 64)),
        ("max_connections", "unread answers", requests_of("whole", connections)),
        ("max_connections", "unread lists of models", lists_of_models(connections)),
        ("max_held_body_bytes", "slow uploads", slow_uploads(bodies, large)),
        ("max_held_body_bytes", "a service without engines", requests_of("empty", bodies, large)),
        ("max_held_body_bytes", "two services without engines", both(empty, empty_too)),
        ("max_held_body_bytes", "a service and slow uploads", both(empty, slow_uploads(half(bodies), large))),
        ("max_held_body_bytes", "a mirror that hangs", copies(16, large - 100)),
        ("max_mirrored", "a mirror that hangs", copies(100, 10)),
        ("max_waiting", "a service without engines", requests_of("empty", lambda s: s.max_waiting + 4)),
        ("max_waiting", "an adapter that is not loaded", requests_of("adapter", lambda s: s.max_waiting + 4)),
        ("max_held_answer_bytes", "answers that do not end", requests_of("large", lambda _: 40)),
        ("max_held_answer_bytes", "unread answers", requests_of("whole", lambda _: 640)),
        ("max_held_answer_bytes", "answers of two services", both(
            requests_of("large", lambda _: 20), requests_of("large-too", lambda _: 20)
        )),
    ]  # fmt: skip
    return [
        Case(limit, value, party, fill)
        for limit, party, fill in fills
        for value in (values.get(limit), 1)
    ]


async def measure(case: Case, num_requests: int) -> Outcome:
    """Fill the limit of a case, and send the others' requests and probes."""
    settings = SETTINGS if case.value is None else replace(SETTINGS, **{case.limit: case.value})
    settings = fit_connections(settings)
    outcome = Outcome()
    async with gateway_stand(settings) as stand, contextlib.AsyncExitStack() as stack:
        await case.fill(stand, stack)

        async def ask_and_probe(number: int) -> None:
            status = await stand.ask("chat", PADDINGS[number % len(PADDINGS)])
            outcome.statuses[status] += 1
            outcome.probes += 1
            outcome.probes_lost += not await stand.probe(PROBES[number % len(PROBES)])

        await closed_loop(OTHERS, range(num_requests), ask_and_probe)
        outcome.num_refused = stand.num_refused()
    return outcome


async def _main(num_requests: int) -> bool:
    """Measure and print all cases. Returns whether all meet their bar."""
    is_met = True
    logging.disable(logging.WARNING)  # a line for each connection that is refused
    print(
        f"{'limit':22} {'value':>8} {'filled by':28} {'refused':>8} {'lost':>8} {'probes lost':>12}"
    )
    for case in cases({}):
        outcome = await measure(case, num_requests)
        value = "default" if case.value is None else str(case.value)
        meets = outcome.meets_bar(case)
        is_met &= meets
        print(
            f"{case.limit:22} {value:>8} {case.party:28} {outcome.num_refused:>8} {outcome.lost:>8.1%} "
            f"{outcome.probes_lost:>5} of {outcome.probes}{'' if meets else '  MISSED'}",
            flush=True,
        )
    return is_met


if __name__ == "__main__":
    options = option_parser(__doc__, requests=200).parse_args()
    sys.exit(0 if asyncio.run(_main(options.requests)) else 1)
