"""Disconnects clients in each phase of a request, and looks for what the gateway does not free.

    python -m benchmarks.gateway.disconnects [--disconnects 5200] [--clients 32] [--seed 1]

Phases: half of the head is sent; half of the body; the request waits at the gateway (for an engine, or in an
admission queue); the engine has not begun to answer; amid the answer; the whole answer was read, and the
connection could be used again. Each with all routes of engines, streams or not, connections that are closed
and reset, with API keys, limits and a real server of Redis.
Bars: an engine sees that its request has ended within 250 ms in 99 of 100 cases, and at the end nothing is
left: no request, slot, reservation, gauge or task, and the store has exactly the counts of the ledger.
"""

import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gateway.disconnect_engine import (
    ANSWERS,
    BEGINS,
    SILENT,
    EngineConnection,
    Requests,
)
from benchmarks.gateway.leftovers import find_leftovers, store_problems
from benchmarks.gateway.stand import SETTINGS
from benchmarks.gateway.tenant_fleet import make_tenants, quota_store
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.running_gateway import running_gateway
from tests.support.tools.redis_process import redis_process

from penstock.core.routing.apis import APIS, Api
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.app import Gateway
from penstock.gateway.snapshots.snapshot import Service, Snapshot

BAR_S = 0.25
# Models at which a request waits at the gateway: without engines, and in a queue behind one that never ends.
EMPTY, QUEUED = "empty", "queued"
PHASES = ("head", "body", "waiting", "first byte", "answer", "end")
MODELS = {"head": ANSWERS, "body": ANSWERS, "first byte": SILENT, "answer": BEGINS, "end": ANSWERS}
# Time for a request to get to where it waits; nothing outside tells.
WAIT_S = 0.03
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """A client that disconnects. is_reset: whether its connection is reset, not closed."""

    phase: str
    api: Api
    is_stream: bool
    is_reset: bool
    key: str
    number: int

    @property
    def model(self) -> str:
        """The model that it asks for."""
        if self.phase != "waiting":
            return MODELS[self.phase]
        # Routes that compute nothing are not queued.
        return QUEUED if self.api.prompts and self.number % 2 else EMPTY

    @property
    def is_sent_to_engine(self) -> bool:
        """Whether the engine has the request when the client leaves."""
        return self.phase in ("first byte", "answer")


@dataclass
class Outcome:
    """took_s: until the engine saw a disconnect, by phase."""

    took_s: dict[str, list[float]] = field(default_factory=lambda: {p: [] for p in PHASES})
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def cases(number: int, keys: list[str], rng: random.Random) -> Iterator[Case]:
    """Cases of all phases, routes and forms, in random order."""
    forms = [
        (phase, api, is_stream)
        for phase in PHASES
        for api in APIS
        for is_stream in ((False, True) if api.generates else (False,))
    ]
    drawn = [forms[each % len(forms)] for each in range(number)]
    rng.shuffle(drawn)
    for position, form in enumerate(drawn):
        yield Case(*form, rng.random() < 0.5, rng.choice(keys), position)


def fleet(address: str) -> Snapshot:
    """Services by how far their answers go, one without engines, and one with an admission queue."""

    def service(
        name: str, served: str, *, is_ready: bool = True, is_timed: bool = False
    ) -> Service:
        endpoint = Endpoint(f"default/{name}-0", address, "r1")
        objectives = Objectives(TIMEOUT_S * 10, TIMEOUT_S) if is_timed else None
        return Service(
            "default",
            name,
            served,
            0,
            {Side("r1"): 100},
            (endpoint,) if is_ready else (),
            objectives,
        )

    services = [service(name, name) for name in (ANSWERS, SILENT, BEGINS)]
    services += [service(EMPTY, EMPTY, is_ready=False), service(QUEUED, QUEUED, is_timed=True)]
    return Snapshot(tuple(services), ())


def request_of(case: Case, request_id: str) -> tuple[bytes, bytes]:
    """The head and the body of a client's request."""
    body: dict[str, object] = {"model": case.model, "stream": case.is_stream}
    if case.api.prompts:
        body[next(iter(case.api.prompts[0]))] = (
            "a prompt of some words"
            if ("messages" not in case.api.prompts[0])
            else [{"role": "user", "content": "a prompt of some words"}]
        )
    sent = json.dumps(body).encode()
    head = (
        f"POST {case.api.path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {case.key}\r\nx-request-id: {request_id}\r\n"
        f"content-length: {len(sent)}\r\n\r\n"
    )
    return head.encode(), sent


class Campaign:
    """Clients of one gateway. requests: of its engine."""

    def __init__(self, port: int, requests: Requests) -> None:
        self._port = port
        self._requests = requests
        self.outcome = Outcome()

    async def run(self, case: Case) -> None:
        """Send a request up to its phase, disconnect, and time when the engine sees it."""
        request_id = f"disconnect-{case.number}"
        self._requests.expect(request_id)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._disconnect(case, request_id)
            self.outcome.counts[case.phase] += 1
        except (TimeoutError, ValueError, OSError, asyncio.IncompleteReadError) as error:
            self.outcome.problems.append(f"{case}: {error!r}")
        finally:
            self._requests.forget(request_id)

    async def _disconnect(self, case: Case, request_id: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head, body = request_of(case, request_id)
        sent = head + body
        if case.phase == "head":
            sent = head[: len(head) // 2]
        elif case.phase == "body":
            sent = head + body[: len(body) // 2]
        writer.write(sent)
        if case.is_sent_to_engine:
            await self._requests.begun[request_id].wait()
        if case.phase == "end":
            await _read_answer(reader)
        elif case.phase == "answer" and case.is_stream:
            await reader.readuntil(b"data: ")
        else:
            await asyncio.sleep(WAIT_S)
        started_s = time.monotonic()
        if case.is_reset:
            writer.transport.abort()
        else:
            writer.close()
        if case.is_sent_to_engine:
            lost_s = await self._requests.lost_s[request_id]
            self.outcome.took_s[case.phase].append(lost_s - started_s)


async def _read_answer(reader: asyncio.StreamReader) -> None:
    """Read a whole answer. Raises ValueError if it is no success."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding" in head:
        await reader.readuntil(b"0\r\n\r\n")
    else:
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    if not head.startswith(b"http/1.1 200"):
        raise ValueError(head[:100])


@asynccontextmanager
async def engine(requests: Requests) -> AsyncIterator[str]:
    """Run the engine. Returns its address."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: EngineConnection(requests), "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def _wait_until_idle(gateway: Gateway) -> list[str]:
    """Wait until nothing is left, for 10 s at most. Returns what is left then."""
    for _ in range(100):
        if not (left := find_leftovers(gateway)):
            return []
        await asyncio.sleep(0.1)
    return left


async def measure(number: int, clients: int, seed: int) -> bool:
    """Run the campaign and print the outcome. Returns whether all bars are met."""
    rng, known = random.Random(seed), make_tenants()
    requests = Requests()
    with tempfile.TemporaryDirectory() as folder, redis_process(Path(folder)) as redis:
        store = quota_store(redis.url)
        async with (
            engine(requests) as address,
            running_gateway(fleet(address), SETTINGS, known.publish, store) as (gateway, servers),
        ):
            num_tasks = len(asyncio.all_tasks())
            campaign = Campaign(servers.clients.port, requests)
            outcome = campaign.outcome
            # The first request of a queue goes to the engine, and never ends: the others wait behind it.
            blocker = Case("waiting", APIS[0], True, True, known.keys[0], 1)
            blocking = asyncio.create_task(_block(campaign, blocker))
            await closed_loop(clients, cases(number, list(known.keys), rng), campaign.run)
            blocking.cancel()
            await asyncio.gather(blocking, return_exceptions=True)
            outcome.problems += await _wait_until_idle(gateway)
            if requests.num_open:
                outcome.problems.append(f"the engine has {requests.num_open} requests")
            if (more := len(asyncio.all_tasks()) - num_tasks) > 0:
                outcome.problems.append(f"{more} tasks are left")
        failed = gateway.state.metrics.tenants._store_failures
        num_failed = int(
            sum(s.value for f in failed.collect() for s in f.samples if "total" in s.name)
        )
        print(f"{num_failed} calls of the store had no answer in time")
        outcome.problems += await store_problems(redis.url, has_failed=num_failed > 0)
    return report(outcome)


async def _block(campaign: Campaign, case: Case) -> None:
    """Keep one request at the engine of the admission queue until cancelled."""
    head, body = request_of(case, "blocker")
    _, writer = await asyncio.open_connection("127.0.0.1", campaign._port)
    try:
        writer.write(head + body)
        await asyncio.Event().wait()
    finally:
        writer.transport.abort()


def report(outcome: Outcome) -> bool:
    """Print the outcome. Returns whether all bars are met."""
    is_met = not outcome.problems
    print(f"{outcome.counts.total()} disconnects: {dict(outcome.counts)}")
    for phase, took_s in outcome.took_s.items():
        if took_s:
            cuts = statistics.quantiles(took_s, n=100)
            is_met &= cuts[98] <= BAR_S
            print(
                f"{phase}: the engine saw it after {cuts[49] * 1e3:.0f} ms in the median, "
                f"{cuts[98] * 1e3:.0f} ms in the 99th percentile, {max(took_s) * 1e3:.0f} ms at most"
            )
    print(f"{len(outcome.problems)} problems", *itertools.islice(outcome.problems, 10), sep="\n")
    return is_met


if __name__ == "__main__":
    options = option_parser(__doc__, disconnects=5200, clients=32, seed=1).parse_args()
    arguments = options.disconnects, options.clients, options.seed
    sys.exit(0 if asyncio.run(measure(*arguments)) else 1)
