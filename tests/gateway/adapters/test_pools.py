"""An adapter that moves between the engines of its service and a dedicated pool, over real sockets."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from tests.gateway.adapters.adapter_engine import NAME, SQL, AdapterEngine, ask
from tests.gateway.adapters.test_routes import publish_route
from tests.support.gateway_snapshots import build

from penstock.core.observed.lora_engine import LoraEngine
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Snapshot

PARENT, POOL = "default/chat", "default/own"


def in_pool(pool: str, generation: int) -> dict:
    """The LoraAdapter sql with this pool in its status."""
    status = {"pool": pool, "dedicatedService": "own", "poolGeneration": generation}
    return SQL | {"status": status}


def read(body: dict):
    (found,) = build([], [], [], [body]).adapters
    return found


def service_body(name: str, adapter: str = "") -> dict:
    metadata = {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if adapter:
        owner = {"kind": "LoraAdapter", "name": adapter, "uid": "1", "controller": True}
        owner["apiVersion"] = "serving.penstock.dev/v1alpha1"
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"model": {"uri": "pvc://m", "name": "chat"}}}


class Pools:
    """A gateway in front of a service and the dedicated pool of an adapter, each with one engine."""

    def __init__(self, front, shared, own, services):
        self.front, self.shared, self.own, self.services = front, shared, own, services

    def publish(self, pool: str, generation: int, *, has_pool: bool = True) -> None:
        parent, dedicated = self.services
        services = (parent, dedicated) if has_pool else (parent,)
        adapter = read(in_pool(pool, generation))
        to = dedicated.key if pool == "Dedicated" and has_pool else parent.key
        self.front.snapshots.publish(Snapshot(services, (), (replace(adapter, service=to),)))


@pytest.fixture
async def pools(start_engine, start_gateway, make_service, until):
    async def make(shared, own, **more):
        engines = [await start_engine(shared, "r1"), await start_engine(own, "r1")]
        front = await start_gateway()
        services = []
        for engine, name, adapter in zip(engines, ("chat", "own"), ("", "sql"), strict=True):
            pod = engine.endpoint().pod
            made = replace(
                make_service(engine, weights={"r1": 100}), name=name, adapter=adapter,
                lora_engines={pod: LoraEngine("Penstock", 4)}, **more,
            )  # fmt: skip
            services.append(made)
        made = Pools(front, shared, own, services)
        made.publish("Shared", 1)
        residency = front.gateway.state.adapters.residency
        await until(lambda: all(residency.copies(e.endpoint().pod) is not None for e in engines))
        return made

    return make


def test_the_status_says_which_pool_serves() -> None:
    found = read(SQL)
    assert (found.service, found.parent, found.pool_generation) == (PARENT, PARENT, 0)
    services = [service_body("chat"), service_body("own", "sql")]
    for pool, service in (("Shared", PARENT), ("Dedicated", POOL)):
        (found,) = build(services, [], [], [in_pool(pool, 2)]).adapters
        assert (found.service, found.parent, found.pool_generation) == (service, PARENT, 2)


@pytest.mark.parametrize(
    "services",
    [
        [service_body("chat")],
        [service_body("chat"), service_body("own")],
        [service_body("chat"), service_body("own", "other")],
    ],
)
def test_without_a_pool_of_its_own_the_service_serves(services: list[dict]) -> None:
    builder = SnapshotBuilder()
    for _ in range(2):
        (found,) = builder.build(services, [], [], [in_pool("Dedicated", 2)]).adapters
        assert found.service == PARENT


async def test_clients_cannot_address_a_pool(pools) -> None:
    made = await pools(AdapterEngine(NAME), AdapterEngine(NAME))
    made.publish("Dedicated", 2)
    for model in ("own", "default/own"):
        assert (await ask(made.front, model))[0] == 404
    assert (await ask(made.front, "chat"))[0] == (await ask(made.front))[0] == 200
    assert (made.shared.served, made.own.served) == (["chat"], [NAME])
    publish_route(made.front, {"name": "own"})
    status, body = await ask(made.front, "any")
    assert (status, body["error"]["code"]) == (503, "route_broken")


async def test_models_name_the_service_and_not_the_pool(pools) -> None:
    made = await pools(AdapterEngine(NAME), AdapterEngine(NAME))
    made.publish("Dedicated", 2)
    async with made.front.client.get(f"{made.front.url}/v1/models") as got:
        cards = {each["id"]: each for each in (await got.json())["data"]}
    assert cards.keys() == {"chat", "chat-sql"}
    assert cards["chat-sql"]["parent"] == "chat"


async def test_no_request_fails_while_the_pool_changes(pools) -> None:
    shared, own = AdapterEngine(NAME), AdapterEngine(NAME)
    made = await pools(shared, own)
    statuses: Counter[int] = Counter()
    is_done = False

    async def client() -> None:
        while not is_done:
            statuses[(await ask(made.front))[0]] += 1

    clients = [asyncio.create_task(client()) for _ in range(8)]
    for generation in range(2, 12):
        await asyncio.sleep(0.05)
        made.publish("Dedicated" if generation % 2 == 0 else "Shared", generation)
    await asyncio.sleep(0.05)
    made.publish("Shared", 13, has_pool=False)
    await asyncio.sleep(0.05)
    is_done = True
    await asyncio.gather(*clients)
    assert statuses.keys() == {200}
    assert min(len(shared.served), len(own.served)) > 10
    assert (shared.calls, own.calls) == ([], [])


async def test_a_request_that_waits_moves_with_its_adapter(pools, until) -> None:
    shared, own = AdapterEngine(NAME), AdapterEngine()
    own.gate.clear()
    made = await pools(shared, own)
    made.publish("Dedicated", 2)
    asking = asyncio.create_task(ask(made.front))
    await until(lambda: ("load", NAME) in own.calls)
    made.publish("Shared", 3, has_pool=False)
    own.gate.set()
    assert (await asking)[0] == 200
    assert shared.served == [NAME]


async def test_a_request_in_the_queue_of_a_deleted_pool_moves(pools, until) -> None:
    made = await pools(AdapterEngine(NAME), AdapterEngine(NAME))
    parent, dedicated = made.services
    made.services = (parent, replace(dedicated, endpoints=()))
    made.publish("Dedicated", 2)
    asking = asyncio.create_task(ask(made.front))
    await until(lambda: made.front.gateway.state.waiting == 1)
    made.publish("Shared", 3, has_pool=False)
    assert (await asking)[0] == 200
    assert made.shared.served == [NAME]


async def test_each_pool_counts_its_own_requests(pools) -> None:
    made = await pools(AdapterEngine(NAME), AdapterEngine(NAME))
    made.publish("Dedicated", 2)
    for model in ("chat-sql", "chat-sql", "chat"):
        assert (await ask(made.front, model))[0] == 200
    report = made.front.gateway.state.stats.report(made.front.snapshots.current)
    assert {key: each.arrivals for key, each in report.services.items()} == {PARENT: 1, POOL: 2}
    assert report.adapters[POOL][NAME].arrivals == 2
    assert report.obeys["default/pool/sql"] == 2
