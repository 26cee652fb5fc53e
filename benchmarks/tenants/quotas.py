"""Limits of tenants under ten times their load, over four gateways while their store fails and comes back.

    python -m benchmarks.tenants.quotas [--scenario NAME]

Four gateways are processes with real sockets, and one real server of Redis; this process is the engine and
the clients. Three tenants send ten times what they may: 600 requests in a minute, 60,000 tokens in a minute,
8 requests at a time. Each scenario has a minute of its own, in which the store is killed or frozen after a
part of the limits is used, or before the minute begins. In "unused" two gateways get no requests until then.
In "lost" the killed server starts again without its data.
Bars: all gateways together admit at most 101 % of a limit, and without the store each at most its quarter.
Nothing is answered with a 5xx. Exits with 1 where a bar is missed.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
from aiohttp import web
from benchmarks.gateway.stand import PATH, SETTINGS
from benchmarks.options import option_parser
from tests.support.http_server import served
from tests.support.running_gateway import running_gateway
from tests.support.tools.redis_process import RedisProcess, redis_process

from penstock.core.routing.forwarded_client import parse_trusted_proxy
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.tenants.tenant import Access, Header, Tenant, UsageLimit
from penstock.gateway.quotas.redis_store import RedisStore
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.observability.metrics import gateway_tenants

NUM_GATEWAYS = 4
OVERLOAD = 10
# Fraction of a limit that may be admitted beyond it.
MAX_EXCESS = 0.01
LIMIT, UNIT_S = 600, 60
TOKENS_OF_A_REQUEST = 100
MAX_RUNNING = 8
# Time that the engine takes, and that a client waits after a refusal because of running requests.
ENGINE_S, PAUSE_S = 0.3, 1.0
# Seconds of a scenario's minute: the load, and the fault and its end.
STARTS_S, FAILS_S, RETURNS_S, ENDS_S = 1.0, 4.0, 14.0, 28.0
# Time before a minute at which a server is killed that is to be gone in all of it.
BEFORE_S = 3.0
TENANTS = (
    Tenant("requests", 1, limits=(UsageLimit("rate", "Requests", LIMIT, "Minute"),)),
    Tenant("tokens", 1, limits=(UsageLimit("rate", "Tokens", LIMIT * TOKENS_OF_A_REQUEST, "Minute"),)),
    Tenant("running", 1, max_running=MAX_RUNNING),
)  # fmt: skip
HEADER = "x-tenant"


@dataclass(frozen=True)
class Scenario:
    """A fault of the store. num_before: gateways that get requests until it fails."""

    name: str
    fail: Callable[[RedisProcess], None] | None = None
    recover: Callable[[RedisProcess], None] | None = None
    num_before: int = NUM_GATEWAYS
    is_gone: bool = False  # for the whole minute


def _start_empty(redis: RedisProcess) -> None:
    shutil.rmtree(redis.folder / "appendonlydir")
    redis.start()


SCENARIOS = (
    Scenario("store up"),
    Scenario("gone for the window", RedisProcess.kill, RedisProcess.start, is_gone=True),
    Scenario("killed and back", RedisProcess.kill, RedisProcess.start),
    Scenario("killed, unused, and back", RedisProcess.kill, RedisProcess.start, 2),
    Scenario("frozen and back", RedisProcess.freeze, RedisProcess.thaw),
    Scenario("frozen, unused, and back", RedisProcess.freeze, RedisProcess.thaw, 2),
    Scenario("killed and lost", RedisProcess.kill, _start_empty),
    Scenario("store up again"),
)


@dataclass
class Outcome:
    """Answers by tenant, gateway and status, the most requests at a time, and failed calls of the store."""

    statuses: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    most_running: int = 0
    num_store_failures: int = 0

    def admitted(self, tenant: str, gateway: int | None = None) -> int:
        return sum(
            number
            for (name, place, status), number in self.statuses.items()
            if name == tenant and status == 200 and gateway in (None, place)
        )

    @property
    def num_failed(self) -> int:
        """Requests with no answer, or another one than 200 and 429."""
        return sum(
            number for (*_, status), number in self.statuses.items() if status not in (200, 429)
        )

    def meets_bar(self, scenario: Scenario) -> bool:
        most = LIMIT // NUM_GATEWAYS if scenario.is_gone else LIMIT
        gateways: Sequence[int | None] = range(NUM_GATEWAYS) if scenario.is_gone else [None]
        admitted = [
            self.admitted(name, each) for name in ("requests", "tokens") for each in gateways
        ]
        is_met = max(admitted) <= most * (1 + MAX_EXCESS)
        return is_met and self.most_running <= MAX_RUNNING and not self.num_failed


class Engine:
    """Answers each request after ENGINE_S, and counts those of the tenant `running`."""

    def __init__(self) -> None:
        self.num_running = self.most_running = 0

    async def answer(self, request: web.Request) -> web.Response:
        is_counted = (await request.json())["model"] == "running"
        self.num_running += is_counted
        self.most_running = max(self.most_running, self.num_running)
        await asyncio.sleep(ENGINE_S)
        self.num_running -= is_counted
        usage = {"prompt_tokens": 50, "completion_tokens": 50, "total_tokens": TOKENS_OF_A_REQUEST}
        return web.json_response({"choices": [{"text": "a"}], "usage": usage})


async def serve_gateway(engine: str, store: str, number: int) -> None:
    """Run a gateway with the tenants until this process is killed."""
    settings = replace(SETTINGS, trusted_proxies=(parse_trusted_proxy("127.0.0.1"),))
    services = [
        Service("default", each.name, each.name, 0, {Side("r1"): 100}, (Endpoint(each.name, engine, "r1"),))
        for each in TENANTS
    ]  # fmt: skip
    quota_store = RedisStore(store, f"gateway-{number}")
    async with running_gateway(Snapshot(tuple(services)), settings, quota_store=quota_store) as (
        made,
        servers,
    ):
        made.state.authenticator.tenants.publish(
            replace(each, access=(Access("default"),), identities=(Header("name", HEADER, each.name),))
            for each in TENANTS
        )  # fmt: skip
        print(servers.clients.port, servers.management.port, flush=True)
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def gateway_process(engine: str, store: str, number: int) -> AsyncIterator[list[int]]:
    """Start a gateway. Returns its ports for clients and for metrics."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.tenants.quotas", "gateway", engine, store, str(number),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield [int(port) for port in (await child.stdout.readline()).split()]
    finally:
        child.kill()
        await child.wait()


class Load:
    """Sends requests to gateways in a minute. num_gateways: the first ones, which get requests now."""

    def __init__(self, session: aiohttp.ClientSession, ports: Sequence[Sequence[int]]) -> None:
        self._session = session
        self._ports = ports
        self.num_gateways = len(ports)
        self.outcome = Outcome()

    async def run(self, end_s: float) -> None:
        """Send until a time, in seconds since the epoch."""
        async with asyncio.TaskGroup() as group:
            for name in ("requests", "tokens"):
                group.create_task(self._open_loop(name, LIMIT * OVERLOAD / UNIT_S, end_s))
            for number in range(MAX_RUNNING * OVERLOAD):
                group.create_task(self._client(number, end_s))

    async def _open_loop(self, tenant: str, rate: float, end_s: float) -> None:
        started_s, number = time.time(), 0
        async with asyncio.TaskGroup() as group:
            while (at_s := started_s + number / rate) < end_s:
                await asyncio.sleep(at_s - time.time())
                group.create_task(self._ask(tenant, number))
                number += 1

    async def _client(self, number: int, end_s: float) -> None:
        await asyncio.sleep(PAUSE_S * number / (MAX_RUNNING * OVERLOAD))
        while time.time() < end_s:
            if await self._ask("running", number) != 200:
                await asyncio.sleep(PAUSE_S)

    async def _ask(self, tenant: str, number: int) -> int:
        gateway, status = number % self.num_gateways, 0
        body = {"model": tenant, "prompt": "x" * 200, "max_tokens": 50}
        url = f"http://127.0.0.1:{self._ports[gateway][0]}{PATH}"
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.post(url, json=body, headers={HEADER: tenant}) as got:
                await got.read()
                status = got.status
        self.outcome.statuses[tenant, gateway, status] += 1
        return status

    async def store_failures(self) -> int:
        """Calls of the store that have failed at all gateways."""
        total = 0
        for _, port in self._ports:
            async with self._session.get(f"http://127.0.0.1:{port}/metrics") as got:
                text = await got.text()
            name = gateway_tenants.QUOTA_STORE_FAILURES.name
            total += sum(
                int(float(line.split()[1])) for line in text.splitlines() if line.startswith(name)
            )
        return total


async def measure(scenario: Scenario, redis: RedisProcess, engine: Engine, load: Load) -> Outcome:
    """Run a scenario in the next minute that has not begun, again if the load lasts into another one."""
    starts_s = (time.time() + BEFORE_S + 1) // UNIT_S * UNIT_S + UNIT_S

    async def at(second: float, act: Callable[[RedisProcess], None] | None) -> None:
        await asyncio.sleep(max(0.0, starts_s + second - time.time()))
        if act is not None:
            act(redis)

    if scenario.is_gone:
        await at(-BEFORE_S, scenario.fail)
    await at(STARTS_S, None)
    engine.most_running, load.outcome, load.num_gateways = 0, Outcome(), scenario.num_before
    num_failures = await load.store_failures()
    loading = asyncio.create_task(load.run(starts_s + ENDS_S))
    if not scenario.is_gone:
        await at(FAILS_S, scenario.fail)
        load.num_gateways = NUM_GATEWAYS
        await at(RETURNS_S, scenario.recover)
    await loading
    is_late = time.time() > starts_s + UNIT_S
    if scenario.is_gone and scenario.recover is not None:
        scenario.recover(redis)
    if is_late:
        print(f"{scenario.name}: the machine was too busy", file=sys.stderr)
        return await measure(scenario, redis, engine, load)
    load.outcome.most_running = engine.most_running
    load.outcome.num_store_failures = await load.store_failures() - num_failures
    return load.outcome


def describe(scenario: Scenario, outcome: Outcome) -> str:
    numbers = [
        " ".join(f"{outcome.admitted(name, each):4}" for each in range(NUM_GATEWAYS))
        + f" = {outcome.admitted(name):4}"
        for name in ("requests", "tokens")
    ]
    missed = "" if outcome.meets_bar(scenario) else "  MISSED"
    return (
        f"{scenario.name:26} {numbers[0]:27} {numbers[1]:27} {outcome.most_running:>8} "
        f"{outcome.num_store_failures:>9} {outcome.num_failed:>5} of {outcome.statuses.total()}{missed}"
    )


async def _main(only: str) -> bool:
    """Measure and print all scenarios, or one. Returns whether all meet their bar."""
    engine, is_met = Engine(), True
    app = web.Application()
    app.router.add_post(PATH, engine.answer)
    print(f"{'':26} {'requests':27} {'tokens / 100':27} {'running':>8} {'store':>9} {'failed':>5}")
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(redis_process(folder))
        address = await stack.enter_async_context(served(app))
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        ports = [
            await stack.enter_async_context(gateway_process(address, redis.url, number))
            for number in range(NUM_GATEWAYS)
        ]
        load = Load(session, ports)
        for scenario in SCENARIOS:
            if only in ("", scenario.name):
                outcome = await measure(scenario, redis, engine, load)
                is_met &= outcome.meets_bar(scenario)
                print(describe(scenario, outcome), flush=True)
    return is_met


if __name__ == "__main__":
    if sys.argv[1:2] == ["gateway"]:
        asyncio.run(serve_gateway(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    options = option_parser(__doc__, scenario="").parse_args()
    sys.exit(0 if asyncio.run(_main(options.scenario)) else 1)
