"""Writes of adapters' statuses, at an API server that tests can hold up."""

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.controller.adapters import statuses as adapter_statuses
from penstock.controller.adapters.rollouts import SteppedRollout
from penstock.controller.adapters.statuses import MAX_WRITES, AdapterEntry, AdapterStatuses
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.resource import AdapterResource, adapter_resource
from penstock.core.adapters.shown_demand import ShownDemand
from penstock.core.reconcile.adapter_state import AdapterState, Instance
from penstock.core.reconcile.adapter_status import adapter_status
from penstock.core.rollout.adapter_events import AdapterInputs
from penstock.core.rollout.adapter_rollout import step_adapter
from penstock.core.spec.canary import CanarySpec
from penstock.errors import Conflict

Object = dict[str, Any]
NOW_S = 1_800_000_000.0


class ApiServer:
    """Stores LoraAdapters and merges statuses. is_open: writes wait until it is set. log: names written."""

    def __init__(self) -> None:
        self.bodies: dict[str, Object] = {}
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.log: list[str] = []

    def add(self, name: str, namespace: str = "team") -> Object:
        spec = {"serviceRef": {"name": "chat"}, "model": {"uri": "pvc://adapters/1"}}
        metadata = {
            "name": name, "namespace": namespace, "uid": name, "generation": 1,
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        kind = {"apiVersion": "serving.penstock.dev/v1alpha1", "kind": "LoraAdapter"}
        self.bodies[name] = kind | {"metadata": metadata, "spec": spec}
        return copy.deepcopy(self.bodies[name])

    async def merge(self, _: object, namespace: str, name: str, patch: Object, **__: str) -> Object:
        await self.is_open.wait()
        await asyncio.sleep(0)  # a request takes time
        body = self.bodies[name]
        if patch["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict("changed")
        body = self.bodies[name] = copy.deepcopy(body)
        body["status"] = body.get("status", {}) | patch["status"]
        body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 1)
        self.log.append(name)
        return copy.deepcopy(body)

    async def create(self, *_: object, **__: object) -> Object:
        """Accept an Event."""
        return {}

    def copies(self, name: str) -> list[str]:
        return [each["podName"] for each in self.bodies[name]["status"]["instances"]]


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def statuses(server: ApiServer) -> Iterator[AdapterStatuses]:
    metrics = OperatorMetrics()
    made = AdapterStatuses(server, Failures(metrics))
    yield made
    await made.close()
    name = "penstock_operator_unexpected_errors_total"
    assert metrics.registry.get_sample_value(name, {"loop": "adapters"}) == 0


def entry(body: Object, *pods: str, demand: str | None = None) -> AdapterEntry:
    """The state of an adapter with copies on these pods."""
    instances = tuple(Instance(pod, "Loaded") for pod in pods)
    state = AdapterState(num_engines=3, wanted=len(pods), instances=instances)
    shown = None if demand is None else ShownDemand(demand, None, 0.0, 0)
    return AdapterEntry(body, adapter_resource(body), state, shown)


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_pass_before_the_watch_event_starts_from_the_last_write(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    watched = server.add("sql")
    assert statuses.update([entry(watched, "a")])
    await settle()
    assert statuses.newest(watched) == server.bodies["sql"]
    for pods in (("a", "b"), ("a",), ("a",)):
        statuses.update([entry(statuses.newest(watched), *pods)])
        await settle()
        assert server.copies("sql") == list(pods)
    assert server.log == ["sql"] * 3
    fresh = copy.deepcopy(server.bodies["sql"])
    assert statuses.newest(fresh) is fresh
    assert not statuses.update([entry(fresh, "a")])


async def test_of_the_states_during_a_slow_write_the_last_one_is_written(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    watched = server.add("sql")
    server.is_open.clear()
    for pods in ((), ("a",), ("a", "b"), ("b",)):
        statuses.update([entry(watched, *pods)])
        await settle()
    server.is_open.set()
    await settle()
    assert server.copies("sql") == ["b"]
    assert server.log == ["sql"] * 2


async def test_passes_during_slow_writes_add_no_work(
    server: ApiServer, statuses: AdapterStatuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [server.add(f"a{number:02}") for number in range(20)]
    computed = []

    def count(resource: AdapterResource, *rest: Any) -> Object:
        computed.append(resource.name)
        return adapter_status(resource, *rest)

    monkeypatch.setattr(adapter_statuses, "adapter_status", count)
    server.is_open.clear()
    for _ in range(5):
        statuses.update([entry(body, "a") for body in bodies])
        await settle()
    server.is_open.set()
    await settle()
    assert sorted(computed) == sorted(server.log) == sorted(server.bodies)


async def test_changed_copies_are_written_before_other_numbers(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    bodies = [server.add(f"a{number:02}") for number in range(20)]
    statuses.update([entry(body, "a") for body in bodies])
    await settle()
    bodies = [server.bodies[name] for name in sorted(server.bodies)]
    server.log.clear()
    states = [entry(body, "a", demand="3") for body in bodies[:-1]]
    assert statuses.update([*states, entry(bodies[-1], "b")])
    await settle()
    assert server.log[0] == "a19"
    assert len(server.log) == 20


async def test_changed_copies_overtake_writes_that_wait(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    bodies = [server.add(f"a{number:02}") for number in range(40)]
    server.is_open.clear()
    statuses.update([entry(body) for body in bodies])
    await settle()
    statuses.update([*[entry(body) for body in bodies[:-1]], entry(bodies[-1], "b")])
    server.is_open.set()
    await settle()
    assert server.log.index("a39") <= MAX_WRITES
    assert server.copies("a39") == ["b"]
    assert sorted(server.log) == sorted(server.bodies)


async def test_many_changes_of_a_namespace_delay_no_status_of_another(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    others = [server.add(f"a{number:02}", "other") for number in range(40)]
    own = server.add("sql")
    server.is_open.clear()
    statuses.update([entry(body) for body in others])
    await settle()
    for pods in (("a",), ("b",)):  # the copies of the others change at each pass
        statuses.update([*(entry(body, *pods) for body in others), entry(own)])
        await settle()
    server.is_open.set()
    await settle()
    assert server.log.index("sql") == MAX_WRITES  # the first write that begins after those that run
    assert sorted(server.log[:41]) == sorted(server.bodies)


async def test_an_adapter_that_always_changes_takes_its_turn(
    server: ApiServer, statuses: AdapterStatuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_statuses, "MAX_WRITES", 1)
    changing, own = server.add("changing", "other"), server.add("sql")
    merge, pods = server.merge, iter(range(10))

    async def change_again(*args: Any, **more: Any) -> Object:
        if args[2] == "changing" and (pod := next(pods, None)) is not None:
            newest = statuses.newest(changing)
            statuses.update([entry(newest, f"pod-{pod}"), entry(own)])
        return await merge(*args, **more)

    monkeypatch.setattr(server, "merge", change_again)
    statuses.update([entry(changing), entry(own)])
    await settle()
    assert server.log.index("sql") == 1
    assert server.log.count("sql") == 1
    assert server.log[-1] == "changing"


async def test_a_step_of_a_rollout_from_an_older_status_is_not_written(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    watched = server.add("sql")

    def stepped(body: Object, now_s: float) -> AdapterEntry:
        version = AdapterVersion("sql", "pvc://adapters/1")
        inputs = AdapterInputs(CanarySpec(), version.revision, now_s)
        rollout = step_adapter(version, body.get("status") or {}, inputs)
        made = entry(body, "a")
        return AdapterEntry(body, made.resource, made.state, None, SteppedRollout(rollout))

    server.is_open.clear()
    for seconds in range(2):
        statuses.update([stepped(watched, NOW_S + 60 * seconds)])
        await settle()
    server.is_open.set()
    await settle()
    assert server.log == ["sql"]
    started = server.bodies["sql"]["status"]["versions"][0]["startTime"]
    statuses.update([stepped(statuses.newest(watched), NOW_S + 120)])
    await settle()
    assert server.bodies["sql"]["status"]["versions"][0]["startTime"] == started


async def test_after_a_change_by_a_user_the_next_pass_tries_again(
    server: ApiServer, statuses: AdapterStatuses
) -> None:
    watched = server.add("sql")
    server.bodies["sql"]["metadata"]["resourceVersion"] = "7"
    statuses.update([entry(watched, "a")])
    await settle()
    assert server.log == []
    statuses.update([entry(copy.deepcopy(server.bodies["sql"]), "a")])
    await settle()
    assert server.copies("sql") == ["a"]
