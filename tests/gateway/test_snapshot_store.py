"""The current snapshot: its listeners, and tasks that wait for a change."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand_estimate import AdapterDemand
from penstock.gateway.snapshot import Snapshot
from penstock.gateway.snapshot_adapter import Adapter
from penstock.gateway.snapshot_store import SnapshotStore


def test_listeners_and_waiting_tasks_learn_of_each_change_and_nothing_else(
    run_virtually, make_service
):
    first, second = Snapshot((make_service(),)), Snapshot((make_service(name="other"),))

    async def main():
        snapshots, loop = SnapshotStore(), asyncio.get_running_loop()
        began_s, received = loop.time(), []
        snapshots.listeners.append(received.append)
        snapshots.listeners.append(lambda snapshot: received.append(snapshots.current is snapshot))
        assert not snapshots.is_synced
        assert await snapshots.wait_for_change(2.0) is False
        assert loop.time() - began_s == pytest.approx(2.0)
        for snapshot in (
            Snapshot(),
            first,
            first,
            second,
        ):  # the first one counts, even if it is empty
            changes = snapshot != snapshots.current or not snapshots.is_synced
            received.clear()
            waiting = asyncio.create_task(snapshots.wait_for_change(1.0))
            await asyncio.sleep(0.5)
            snapshots.publish(snapshot)
            assert received == ([snapshot, True] if changes else [])
            assert (snapshots.current, snapshots.is_synced) == (snapshot, True)
            assert await waiting is changes
        assert await snapshots.wait_for_change(1.0) is False  # the next change, not the last one

    run_virtually(main)


def test_changed_demand_is_stored_and_wakes_nobody(run_virtually):
    async def main():
        snapshots, received = SnapshotStore(), []
        snapshots.listeners.append(received.append)
        for per_s in (1.0, 2.0):
            version = AdapterVersion("sql", "file:///models/sql")
            one = Adapter("default", "sql", "sql", 0, "default/chat", version)
            shown = replace(one, demand=AdapterDemand(per_s))
            waiting = asyncio.create_task(snapshots.wait_for_change(1.0))
            await asyncio.sleep(0.5)
            snapshots.publish(Snapshot(adapters=(shown,)))
            demand = snapshots.current.adapter_demand("default/chat")
            assert demand == {version.engine_name: AdapterDemand(per_s)}
            assert await waiting is (per_s == 1.0)
        assert len(received) == 1

    run_virtually(main)
