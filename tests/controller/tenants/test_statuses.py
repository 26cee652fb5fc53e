"""Statuses of Tenants at a real API server."""

import asyncio

import pytest

from penstock.clients.kubernetes.resources import TENANTS
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.tenants.statuses import TenantStatuses
from penstock.errors import NotFound

pytestmark = pytest.mark.cluster

CHAT = ("team-a", "chat")
KEYS = {"name": "keys", "type": "APIKey", "apiKey": {"secretName": "statuses-keys"}}
ACCESS = [{"namespace": "team-a", "modelNames": ["chat"]}]


@pytest.fixture
async def stand(kube):
    """Gateways that tests change, while the statuses of tenants are kept current."""

    class Stand:
        def __init__(self):
            self.created, self.affected = [], []
            self.generations = {"gateway-1": 1}
            self.services = {CHAT: {"metadata": {"name": "chat"}, "spec": {"model": {}}}}
            self.statuses = TenantStatuses(
                kube,
                applied=lambda _: self.generations,
                services=lambda: self.services,
                affected=self.affected.append,
                failures=Failures(OperatorMetrics()),
            )

        async def create(self, name, **spec):
            self.created.append(name)
            body = {
                "apiVersion": "serving.penstock.dev/v1alpha1",
                "kind": "Tenant",
                "metadata": {"name": name},
                "spec": spec,
            }
            return await kube.create(TENANTS, None, body)

        async def delete(self, name):
            await kube.delete(TENANTS, None, name)

        async def version(self, name):
            return (await kube.get(TENANTS, None, name))["metadata"]["resourceVersion"]

        async def until(self, name, **reasons):
            """Wait until conditions of a tenant have these reasons."""
            for _ in range(300):
                status = (await kube.get(TENANTS, None, name)).get("status", {})
                found = {c["type"]: c["reason"] for c in status.get("conditions", [])}
                if found.items() >= reasons.items():
                    return status
                await asyncio.sleep(0.1)
            raise AssertionError(found)

        async def until_counted(self, allowed):
            """Wait until so many tenants may use the service."""
            for _ in range(300):
                counts = self.statuses.counts
                if counts is not None and counts.count(*CHAT).allowed == allowed:
                    return
                await asyncio.sleep(0.1)
            raise AssertionError(counts and counts.count(*CHAT))

    made = Stand()
    running = asyncio.create_task(made.statuses.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for name in made.created:
        try:
            await made.delete(name)
        except NotFound:
            continue


async def test_a_new_tenant_is_not_ready_and_has_its_defaults(stand):
    created = await stand.create("early")
    assert created["status"] == {"observedGeneration": -1}
    assert created["spec"] == {"priority": 0, "fairShareWeight": 1}


async def test_a_tenant_becomes_ready_and_follows_the_gateways(stand):
    await stand.create("acme", identities=[KEYS])
    status = await stand.until("acme", Ready="Ready", Reconciling="Settled")
    assert status["observedGeneration"] == 1
    assert status["gateways"] == {"total": 1, "programmed": 1}
    stand.generations["gateway-2"] = None
    await stand.until("acme", Programmed="GatewaysBehind", Ready="GatewaysBehind")


async def test_an_identity_counts_for_the_older_tenant_until_that_is_deleted(stand):
    await stand.create("b-older", identities=[KEYS])
    await stand.until("b-older", Accepted="Accepted")
    await asyncio.sleep(1.1)  # creation times have seconds
    await stand.create("a-later", identities=[KEYS])
    await stand.until("a-later", Accepted="IdentityInUse", Stalled="IdentityInUse")
    await stand.delete("b-older")
    await stand.until("a-later", Ready="Ready")


async def test_a_settled_tenant_is_not_written(stand):
    await stand.create("acme", identities=[KEYS])
    await stand.until("acme", Ready="Ready")
    version = await stand.version("acme")
    for _ in range(3):
        await stand.statuses.update()
    assert await stand.version("acme") == version


async def test_what_a_new_leader_does_not_know_yet_stays(stand):
    await stand.create("acme", identities=[KEYS])
    await stand.until("acme", Ready="Ready")
    version = await stand.version("acme")
    stand.generations = None
    await stand.statuses.update()
    assert await stand.version("acme") == version


async def test_a_service_is_affected_only_by_tenants_that_may_use_it(stand):
    await stand.until_counted(0)
    stand.affected.clear()
    await stand.create("acme", access=ACCESS)
    await stand.until_counted(1)
    assert stand.affected == [CHAT]
    await stand.create("other", access=[{"namespace": "team-b"}])
    await stand.until("other", Accepted="Accepted")
    assert stand.affected == [CHAT]
    await stand.delete("acme")
    await stand.until_counted(0)
    assert stand.affected == [CHAT, CHAT]
