"""Statuses of ModelRoutes at a real API server."""

import asyncio

import pytest

from penstock.clients.kubernetes.resources import MODEL_ROUTES
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.routes.statuses import RouteStatuses
from penstock.core.observed.name_claims import route_claim
from penstock.core.observed.name_index import NameIndex

pytestmark = pytest.mark.cluster

SERVICE = {
    "metadata": {},
    "status": {"conditions": [{"type": "TrafficAvailable", "status": "True"}]},
}


@pytest.fixture
async def stand(kube, namespace):
    """Gateways and services that tests change, while the statuses are kept current."""

    class Stand:
        def __init__(self):
            self.services, self.generations = {}, {"gateway-1": 1}
            self.statuses = RouteStatuses(
                kube,
                services=lambda: self.services,
                deployments=list,
                adapters=list,
                names=lambda: NameIndex(map(route_claim, self.statuses.routes or ())),
                applied=lambda _: self.generations,
                failures=Failures(OperatorMetrics()),
            )

        async def create(self, name, **spec):
            rule = {"name": "all", "backendRefs": [{"name": "chat"}]}
            body = {
                "apiVersion": "serving.penstock.dev/v1alpha1",
                "kind": "ModelRoute",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"modelName": "any", "rules": [rule]} | spec,
            }
            return await kube.create(MODEL_ROUTES, namespace, body)

        async def status(self, name):
            return (await kube.get(MODEL_ROUTES, namespace, name)).get("status", {})

        async def version(self, name):
            return (await kube.get(MODEL_ROUTES, namespace, name))["metadata"]["resourceVersion"]

        async def until(self, name, **reasons):
            """Wait until conditions of a route have these reasons."""
            for _ in range(300):
                status = await self.status(name)
                found = {c["type"]: c["reason"] for c in status.get("conditions", [])}
                if found.items() >= reasons.items():
                    return status
                await asyncio.sleep(0.1)
            raise AssertionError(found)

    made = Stand()
    made.namespace = namespace
    running = asyncio.create_task(made.statuses.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_new_route_is_not_ready(stand):
    """kstatus calls an object current whose observed generation is its own; it defaults to -1."""
    created = await stand.create("early")
    assert created["status"] == {"observedGeneration": -1}


async def test_a_route_becomes_ready_and_follows_services_and_gateways(stand):
    await stand.create("front")
    await stand.until("front", ResolvedRefs="BackendNotFound", Reconciling="BackendNotFound")
    stand.services[stand.namespace, "chat"] = SERVICE
    status = await stand.until("front", Ready="Ready", Reconciling="Settled")
    assert status["observedGeneration"] == 1
    assert status["gateways"] == {"total": 1, "programmed": 1}
    stand.generations["gateway-2"] = None
    await stand.until("front", Programmed="GatewaysBehind", Ready="GatewaysBehind")


class BrokenServices(dict):
    """Services of which reading one raises an error that no check has foreseen."""

    def __init__(self):
        super().__init__()
        self.is_read = asyncio.Event()

    def items(self):
        self.is_read.set()
        raise ValueError("a broken service")


async def test_an_error_of_a_pass_ends_no_later_ones(stand):
    services, stand.services = stand.services, BrokenServices()
    await stand.create("front")
    async with asyncio.timeout(10):
        await stand.services.is_read.wait()
    stand.services = services
    await stand.until("front", ResolvedRefs="BackendNotFound")


async def test_a_name_taken_twice_is_reported_on_the_younger_route(stand):
    stand.services[stand.namespace, "chat"] = SERVICE
    await stand.create("a-first")
    await stand.create("b-second")
    await stand.until("a-first", Accepted="Accepted")
    status = await stand.until("b-second", Accepted="ModelNameInUse", Stalled="ModelNameInUse")
    (accepted,) = (c for c in status["conditions"] if c["type"] == "Accepted")
    assert "a-first" in accepted["message"]


async def test_a_settled_route_is_not_written(stand):
    stand.services[stand.namespace, "chat"] = SERVICE
    await stand.create("front")
    await stand.until("front", Ready="Ready")
    version = await stand.version("front")
    for _ in range(3):
        await stand.statuses.update()
    assert await stand.version("front") == version


async def test_what_a_new_leader_does_not_know_yet_is_not_missing(stand):
    stand.services[stand.namespace, "chat"] = SERVICE
    await stand.create("front")
    await stand.until("front", Ready="Ready")
    version = await stand.version("front")
    known, stand.services = stand.services, None
    await stand.statuses.update()
    stand.services, stand.generations = known, None
    await stand.statuses.update()
    assert await stand.version("front") == version


async def test_a_new_route_is_told_that_the_gateways_are_unknown(stand):
    stand.services[stand.namespace, "chat"] = SERVICE
    stand.generations = None
    await stand.create("front")
    await stand.until("front", Accepted="Accepted", Programmed="NoGateways")
