"""The current snapshot: its listeners, and tasks that wait for a change."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.snapshots.store import SnapshotStore


def test_listeners_learn_of_each_change_and_nothing_else(run_virtually, make_service):
    first, second = Snapshot((make_service(),)), Snapshot((make_service(name="other"),))

    async def main():
        snapshots, loop = SnapshotStore(), asyncio.get_running_loop()
        started_s, received = loop.time(), []
        snapshots.listeners.append(received.append)
        snapshots.listeners.append(lambda snapshot: received.append(snapshots.current is snapshot))
        assert not snapshots.is_synced
        assert await snapshots.wait_for_first(2.0) is False
        assert loop.time() - started_s == pytest.approx(2.0)
        waiting = asyncio.create_task(snapshots.wait_for_first(1.0))
        await asyncio.sleep(0.5)
        for snapshot in (Snapshot(), first, first, second):  # the first counts, even if it is empty
            changes = snapshot != snapshots.current or not snapshots.is_synced
            received.clear()
            snapshots.publish(snapshot)
            assert received == ([snapshot, True] if changes else [])
            assert (snapshots.current, snapshots.is_synced) == (snapshot, True)
            assert await waiting is True
        assert await snapshots.wait_for_first(0.0) is True

    run_virtually(main)


ENDPOINT = Endpoint("default/p1", "10.0.0.1:8000", "r1")


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        ({"endpoints": (ENDPOINT,)}, True),
        ({"weights": {Side("r2"): 100}}, True),
        ({"stalled": "ModelNotFound"}, True),
        ({"is_scaled_to_zero": True}, True),
        ({"lora_engines": {"default/p1": LoraEngine("Penstock", 1)}}, True),
        ({"name": "moved"}, True),
        ({"sides": {"default/p1": Side("r1")}}, False),
        ({"generation": 7}, False),
        ({"objectives": Objectives(1.0, 0.1)}, False),
    ],
)
def test_a_wait_ends_with_what_a_request_may_be_sent_to(run_virtually, make_service, change, wakes):
    async def main():
        snapshots, service = SnapshotStore(), make_service()
        snapshots.publish(Snapshot((service,)))
        waiting = asyncio.create_task(snapshots.wait_for_change(service.key, 1.0))
        await asyncio.sleep(0.5)
        snapshots.publish(Snapshot((replace(service, **change),)))
        assert await waiting is wakes
        assert await snapshots.wait_for_change(service.key, 1.0) is False  # the next change

    run_virtually(main)


def test_changes_of_other_services_wake_nobody(run_virtually, make_service):
    """One namespace that changes an object all the time would wake all requests that wait for an engine."""

    async def main():
        snapshots, service, woken = SnapshotStore(), make_service(), []
        snapshots.publish(Snapshot((service,)))

        async def wait(number):
            if await snapshots.wait_for_change(service.key, 10.0):
                woken.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(wait(number))
            await asyncio.sleep(0)
            for number in range(5):
                other = replace(make_service(name="other"), weights={Side(str(number)): 1})
                snapshots.publish(Snapshot((service, other)))
                await asyncio.sleep(1.0)
                assert woken == []
            snapshots.publish(Snapshot((replace(service, endpoints=(ENDPOINT,)), other)))
        assert woken == list(range(100))

    run_virtually(main)


def test_a_wait_ends_when_the_adapter_moves_to_another_service(run_virtually, make_service):
    async def main():
        snapshots, services = SnapshotStore(), (make_service(), make_service(name="pool"))
        version = AdapterVersion("sql", "file:///models/sql")
        one = Adapter("default", "sql", "sql", 0, "default/chat", version)
        snapshots.publish(Snapshot(services, adapters=(one,)))
        waits = [
            asyncio.create_task(snapshots.wait_for_change("default/chat", 1.0, adapter=adapter))
            for adapter in ("", one.key)
        ]
        await asyncio.sleep(0.5)
        snapshots.publish(Snapshot(services, adapters=(replace(one, service="default/pool"),)))
        assert await asyncio.gather(*waits) == [False, True]

    run_virtually(main)


class Kube:
    """An API server with one service, whose watch gives an event for each of its changes."""

    def __init__(self):
        self.changes = asyncio.Queue()

    async def list(self, resource, namespace, *, page_size, reduce, **query):
        return ([self.body(0)] if resource is INFERENCE_SERVICES else []), "0"

    async def watch(self, resource, namespace, version, **query):
        while True:
            if resource is not INFERENCE_SERVICES:
                await asyncio.Event().wait()
            yield "MODIFIED", self.body(await self.changes.get())

    def body(self, percent):
        traffic = [{"revision": "r1", "cohort": "Primary", "percent": percent}]
        return {
            "metadata": {
                "namespace": "default", "name": "chat", "resourceVersion": str(percent),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"model": {"uri": "file:///m"}},
            "status": {"traffic": traffic},
        }  # fmt: skip


def test_many_changes_make_few_snapshots_and_none_is_lost(run_virtually):
    async def main():
        snapshots, kube, loop = SnapshotStore(), Kube(), asyncio.get_running_loop()
        received = []
        snapshots.listeners.append(
            lambda made: received.append((loop.time(), made.services[0].weights[Side("r1")]))
        )
        following = asyncio.create_task(snapshots.follow(kube, None))
        await snapshots.wait_for_first(1.0)
        await asyncio.sleep(1.0)
        received.clear()
        started_s = loop.time()
        for percent in range(1, 101):
            kube.changes.put_nowait(percent)
            await asyncio.sleep(0.001)
        await asyncio.sleep(1.0)
        at_s = [round(each - started_s, 3) for each, _ in received]
        assert received[0][1] == 1
        assert at_s[0] < 0.001
        assert all(later - at >= 0.05 for at, later in itertools.pairwise(at_s))
        assert received[-1][1] == 100
        assert at_s[-1] <= 0.151
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    run_virtually(main)


def test_changed_demand_is_stored_and_wakes_nobody(run_virtually):
    async def main():
        snapshots, received = SnapshotStore(), []
        snapshots.listeners.append(received.append)
        for per_s in (1.0, 2.0):
            version = AdapterVersion("sql", "file:///models/sql")
            one = Adapter("default", "sql", "sql", 0, "default/chat", version)
            shown = replace(one, demand=AdapterDemand(per_s))
            waiting = asyncio.create_task(
                snapshots.wait_for_change("default/chat", 1.0, adapter="default/sql")
            )
            await asyncio.sleep(0.5)
            snapshots.publish(Snapshot(adapters=(shown,)))
            demand = snapshots.current.adapter_demand("default/chat")
            assert demand == {version.engine_name: AdapterDemand(per_s)}
            assert await waiting is (per_s == 1.0)
        assert len(received) == 1

    run_virtually(main)
