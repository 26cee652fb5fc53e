"""A service with an adapter that moves between the shared and a dedicated pool, at a real API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.cluster.adapter_stand import AdapterStand, adapter_stand, engine_name

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.errors import NotFound

SQL = engine_name("sql")
POOL = "chat-sql"
TO_SHARED = {"pool": "Shared", "dedicated": None}


@asynccontextmanager
async def pool_stand(kube: Kube, namespace: str) -> AsyncIterator[AdapterStand]:
    """An adapter stand whose services are those of the API server."""
    async with adapter_stand(kube, namespace) as made:
        await made.watch_services()
        yield made


async def pool_of(stand: AdapterStand, is_as_wanted: Callable[[Object], bool] = bool) -> Object:
    """Wait until the dedicated pool exists and is as wanted. Returns it."""
    body: Object = {}
    for _ in range(200):
        try:
            body = await stand.kube.get(INFERENCE_SERVICES, stand.namespace, POOL)
        except NotFound:
            body = {}
        if body and is_as_wanted(body):
            return body
        await asyncio.sleep(0.05)
    raise AssertionError(body)


async def until_gone(stand: AdapterStand, within_s: int = 10) -> None:
    """Wait until the dedicated pool does not exist."""
    for _ in range(within_s * 20):
        names = {
            each["metadata"]["name"]
            for each in (await stand.kube.list(INFERENCE_SERVICES, stand.namespace))[0]
        }
        if POOL not in names:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(names)


async def until_status(stand: AdapterStand, **fields: object) -> Object:
    """Wait until the status of the adapter has these fields. Returns it."""
    status: Object = {}
    for _ in range(600):
        status = (await stand.get("sql")).get("status", {})
        if {name: status.get(name) for name in fields} == fields:
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(status)


async def patch_service(stand: AdapterStand, name: str, body: Object) -> None:
    """Patch a service as a user."""
    await stand.kube.merge(INFERENCE_SERVICES, stand.namespace, name, body, manager="user")


async def start_pool(stand: AdapterStand) -> None:
    """Serve an adapter from the shared pool, and then from its dedicated pool."""
    shared = await stand.add_engine("chat-a")
    await stand.create("sql", placement={"minReplicas": 1})
    status = await stand.until("sql", Loaded="AllLoaded")
    assert status["pool"] == "Shared"
    await stand.change("sql", pool="Dedicated")
    await stand.until("sql", PoolReady="EnginesStarting", Ready="Ready")
    own = await stand.add_engine("chat-sql-a", service=POOL)
    await stand.until_true(lambda: SQL in own.entries)
    assert SQL in shared.entries
    assert (await stand.get("sql"))["status"]["pool"] == "Shared"
    await stand.set_traffic(POOL)
    await until_status(stand, pool="Dedicated", dedicatedService=POOL, poolGeneration=2)
