"""Loads and unloads in the background: their order, and what they say about copies."""

import asyncio
from dataclasses import replace

import pytest

from penstock.clients.pods.engine_adapters import EngineFailure
from penstock.controller.adapters.copy_changes import Change, CopyChanges
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.core.adapters.replica import Copy
from penstock.core.observed.lora_engine import LoraEngine

POD = LoraPod("team", "chat", "chat-a", "127.0.0.1:8000", LoraEngine("Penstock", 8))
BUSY = EngineFailure("Busy", "Busy", "all in use")


class Engines:
    """Changes end when the test says so."""

    def __init__(self):
        self.started, self.ends = [], {}

    async def _change(self, kind, name):
        self.started.append((kind, name))
        end = self.ends[name] = asyncio.get_running_loop().create_future()
        return await end

    async def load(self, _namespace, _address, _runtime, name, _path):
        return await self._change("load", name)

    async def unload(self, _address, name):
        return await self._change("unload", name)

    async def end(self, name, failure=None):
        self.ends[name].set_result(failure)
        await asyncio.sleep(0.01)


@pytest.fixture
async def engines():
    return Engines()


@pytest.fixture
async def changes(engines):
    made = CopyChanges(engines, Failures(OperatorMetrics()), lambda _: None)
    yield made
    await made.close()


def load(name):
    return Change("load", POD, name, "/p")


async def test_a_load_waits_for_the_unloads_that_make_room_for_it(changes, engines):
    changes.start(Change("unload", POD, "old"))
    changes.start(load("new"))
    await asyncio.sleep(0.01)
    assert engines.started == [("unload", "old")]
    assert changes.of_pod(POD.key)["new"].state == "Waiting"
    await engines.end("old")
    assert engines.started == [("unload", "old"), ("load", "new")]


@pytest.mark.parametrize(("runtime", "at_once"), [("Penstock", 4), ("VLLM", 1)])
async def test_an_engine_gets_the_loads_it_does_at_once_and_an_unload_beside_them(
    changes, engines, runtime, at_once
):
    pod = replace(POD, engine=LoraEngine(runtime, 8))
    for number in range(at_once + 1):
        changes.start(Change("load", pod, f"a{number}", "/p"))
    changes.start(Change("unload", pod, "old"))
    await asyncio.sleep(0.01)
    assert len(engines.started) == at_once + 1
    assert ("unload", "old") in engines.started
    await engines.end("a0")
    assert ("load", f"a{at_once}") in engines.started


async def test_copies_are_expected_by_list_and_changes(changes, engines):
    listed = {"old": Copy("Resident", 1), "kept": Copy("Resident")}
    changes.start(Change("unload", POD, "old"))
    changes.start(load("new"))
    changes.start(load("bad"))
    await asyncio.sleep(0.01)
    loading = {"kept": Copy("Resident"), "new": Copy("Loading"), "bad": Copy("Loading")}
    assert changes.expected(POD.key, listed) == loading
    await engines.end("old")
    await engines.end("new")
    await engines.end("bad", BUSY)
    assert changes.expected(POD.key, listed) == {
        "kept": Copy("Resident"), "new": Copy("Resident"),
    }  # fmt: skip
    changes.forget_done()
    assert changes.expected(POD.key, listed) == listed


async def test_a_failed_unload_leaves_the_copy(changes, engines):
    changes.start(Change("unload", POD, "old"))
    await asyncio.sleep(0.01)
    await engines.end("old", BUSY)
    assert changes.expected(POD.key, {"old": Copy("Resident")}) == {"old": Copy("Resident")}
