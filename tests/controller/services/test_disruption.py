"""Node drains against a real API server: engines of a service are evicted one at a time."""

import asyncio

import pytest

from penstock.clients.kubernetes.resources import DISRUPTION_BUDGETS, PODS
from penstock.controller.process.settings import Settings
from penstock.controller.watching.watches import Watches
from penstock.core.manifests.disruption import budget
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.errors import Transient

pytestmark = pytest.mark.cluster


async def budgets(stand):
    found, _ = await stand.kube.list(DISRUPTION_BUDGETS, stand.namespace)
    return [each["metadata"]["name"] for each in found]


async def create_service(stand, replicas):
    await stand.create(scaling={"mode": "External"}, replicas=replicas)
    await until_ready(stand, replicas)


async def until_budgets(stand, names):
    """The status may count engines before their Deployment is seen, which the budget waits for."""

    async def are_there():
        return await budgets(stand) == names

    await stand.until(are_there)


async def until_ready(stand, replicas):
    async def are_ready():
        status = await stand.status()
        return (status.get("replicas"), status.get("readyReplicas")) == (replicas, replicas)

    await stand.until(are_ready)


async def evict(stand, pod):
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await stand.kube.create(PODS, stand.namespace, body, name=name, sub="eviction")


async def test_a_drain_evicts_one_of_two_engines_at_a_time(stand):
    await create_service(stand, 2)
    await until_budgets(stand, ["chat-engines"])

    async def is_counted():
        (found,), _ = await stand.kube.list(DISRUPTION_BUDGETS, stand.namespace)
        return found.get("status", {}).get("disruptionsAllowed") == 1

    await stand.until(is_counted)
    first, second = [p for p in await stand.pods() if p["metadata"]["labels"][ROLE_LABEL] == SERVE]
    await evict(stand, first)
    with pytest.raises(Transient, match="disruption budget"):
        await evict(stand, second)

    await stand.change(replicas=1)
    await until_ready(stand, 1)
    await until_budgets(stand, [])


async def test_a_budget_changed_or_deleted_by_hand_is_restored(stand):
    await create_service(stand, 2)
    await until_budgets(stand, ["chat-engines"])
    patch = {"spec": {"maxUnavailable": "100%"}}
    await stand.kube.merge(
        DISRUPTION_BUDGETS, stand.namespace, "chat-engines", patch, manager="test"
    )
    await stand.step()
    body = await stand.kube.get(DISRUPTION_BUDGETS, stand.namespace, "chat-engines")
    assert body["spec"]["maxUnavailable"] == 1
    await stand.kube.delete(DISRUPTION_BUDGETS, stand.namespace, "chat-engines")
    await stand.step()
    assert await budgets(stand) == ["chat-engines"]


async def test_a_users_own_budget_replaces_the_operators(stand):
    """A pod that two budgets select cannot be evicted at all."""
    await create_service(stand, 2)
    theirs = budget("mine", stand.namespace, {}, {SERVICE_LABEL: "chat"})
    await stand.kube.create(DISRUPTION_BUDGETS, stand.namespace, theirs)
    await stand.step()
    assert await budgets(stand) == ["mine"]
    await stand.kube.delete(DISRUPTION_BUDGETS, stand.namespace, "mine")
    await stand.step()
    assert await budgets(stand) == ["chat-engines"]


async def test_budgets_of_a_namespace_are_known_from_a_watch(stand):
    settings = Settings("me", "penstock", stand.namespace, "127.0.0.1", 0)
    watches = Watches(stand.kube, settings, lambda _: None, lambda *_: None, lambda _: None)

    async def until_known(names):
        async with asyncio.timeout(30):
            while True:
                found = [e["metadata"]["name"] for e in await watches.budgets(stand.namespace)]
                if found == names:
                    return
                await asyncio.sleep(0.01)

    theirs = budget("mine", stand.namespace, {}, {SERVICE_LABEL: "chat"})
    await stand.kube.create(DISRUPTION_BUDGETS, stand.namespace, theirs)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(run(watches))
        await until_known(["mine"])
        assert await watches.budgets("elsewhere") == []
        await stand.kube.delete(DISRUPTION_BUDGETS, stand.namespace, "mine")
        await until_known([])
        watching.cancel()


async def run(watches):
    async with asyncio.TaskGroup() as group:
        watches.start(group)
