"""LoRA adapters of a service: placed, loaded on demand, answered by their own weights, refused, removed."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cluster.adapted_service import (
    CLAIM,
    ENGINES,
    NAME,
    NUM_TOKENS,
    AdaptedService,
    adapter,
    service,
)
from tests.support.cluster.adapter_folders import make_folders
from tests.support.cluster.penstock_command import penstock
from tests.support.engine.merged import MergedModel

from penstock.chart.names import NAMESPACE, OPERATOR
from penstock.core.spec.service import Object
from penstock.demo.stage import Stage, poll_until
from penstock.local import faults
from penstock.local.cluster import Cluster
from penstock.local.models_claim import folder_claim

PROMPT = list(range(40, 60))
NUM_ADAPTERS = 8
# The engines hold 8 copies together. These two adapters have 3 of them, so that the 6 others do not all fit.
EVERYWHERE, PINNED = "lora-0", "lora-1"
ON_DEMAND = [f"lora-{number}" for number in range(2, NUM_ADAPTERS)]

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class Adapters:
    """folder: of all adapters. answers: tokens of the model with each adapter merged, by its name."""

    folder: Path
    answers: dict[str, list[int]]


@pytest.fixture(scope="module")
def adapters(models: Path, pod_folder: Path) -> Adapters:
    model = models / "penstock-tiny"
    reference = MergedModel(model)
    answers = {NAME: reference.greedy(None, PROMPT, NUM_TOKENS)}
    for number, made in enumerate(make_folders(model, pod_folder, NUM_ADAPTERS)):
        answers[f"lora-{number}"] = reference.greedy(made, PROMPT, NUM_TOKENS)
    return Adapters(pod_folder, answers)


@pytest.fixture
async def adapted(stage: Stage, adapters: Adapters) -> AsyncIterator[AdaptedService]:
    """The service with all good adapters, each accepted."""
    stage.mount(folder_claim(CLAIM, adapters.folder))
    adapted = AdaptedService(stage)
    adapted.stage.apply(
        service(),
        adapter(EVERYWHERE, "adapter-000", policy="All"),
        adapter(PINNED, "adapter-001", policy="Fixed", replicas=1, eviction="Never"),
        *(adapter(name, f"adapter-{name[-1]:0>3}") for name in ON_DEMAND),
    )
    try:
        await stage.wait_for_engines(NAME, ENGINES, within_s=120)
        yield adapted
    finally:
        stage.kubectl("delete", "lora", "--all")
        await adapted.close()


async def test_the_life_of_adapters(adapted: AdaptedService, adapters: Adapters) -> None:
    await adapted.wait_for(EVERYWHERE, Loaded="AllLoaded", Ready="Ready")
    await adapted.wait_for(PINNED, Loaded="AllLoaded", Ready="Ready")
    await check_answers(adapted, adapters)
    await adapted.wait_for_true_statuses()
    await check_models(adapted)
    await check_commands(adapted)
    await check_broken(adapted, adapters)
    await check_unload_by_others(adapted)
    await check_engine_kill(adapted, adapters)
    await check_without_operator(adapted, adapters)
    await check_next_operator(adapted)
    await check_deletion(adapted)


async def check_answers(adapted: AdaptedService, adapters: Adapters) -> None:
    """Ask for the model and each adapter at the same time, twice. Adapters that are cold are loaded."""
    assert len({tuple(answer) for answer in adapters.answers.values()}) == NUM_ADAPTERS + 1
    names = list(adapters.answers) * 2
    answers = await asyncio.gather(*(adapted.tokens(name, PROMPT) for name in names))
    assert [
        name
        for name, answer in zip(names, answers, strict=True)
        if answer != adapters.answers[name]
    ] == []


async def check_models(adapted: AdaptedService) -> None:
    models = await adapted.models()
    assert {models[name]["parent"] for name in (EVERYWHERE, *ON_DEMAND)} == {NAME}
    status, body = await adapted.ask(ON_DEMAND[0], PROMPT)
    revision = (await adapted.statuses())[ON_DEMAND[0]]["revision"]
    assert (status, body["model"]) == (200, f"{ON_DEMAND[0]}@{revision}")


async def check_commands(adapted: AdaptedService) -> None:
    rows = adapted.stage.kubectl("get", "lora", "--no-headers").splitlines()
    assert len(rows) == NUM_ADAPTERS
    print(await penstock(adapted.stage, "adapters"))
    print(await penstock(adapted.stage, "adapters", EVERYWHERE))
    found = await wait_for_requests(adapted, {2, 3})
    copies = {
        (each["name"], pod["podName"]) for each in found for pod in each["pods"] if pod["state"]
    }
    assert copies == {(name.partition("@")[0], pod) for name, pod in await adapted.on_engines()}


async def wait_for_requests(adapted: AdaptedService, expected: set[int]) -> list[Object]:
    """Wait until the operator has these counts of requests. Returns the rows of `penstock adapters`."""
    for _ in range(10):
        found: list[Object] = json.loads(await penstock(adapted.stage, "adapters", "-o", "json"))
        counts = {each["requests"] for each in found}
        if counts == expected:
            return found
        await asyncio.sleep(1)
    raise AssertionError(counts)


async def ask_known(adapted: AdaptedService, name: str) -> tuple[int, Object]:
    """Ask an adapter that was applied just now, once the gateway's watch has reported it."""
    for _ in range(50):
        status, body = await adapted.ask(name, PROMPT)
        if status != 404:
            break
        await asyncio.sleep(0.1)
    return status, body


async def check_broken(adapted: AdaptedService, adapters: Adapters) -> None:
    """Each broken adapter has its own reason in its status, and harms no pod and no other adapter."""
    causes = {
        "rank-64": "rank 64",
        "pickled": "adapter_model.safetensors",
        "cut": "adapter_model.safetensors",
        "missing": "folder",
    }
    adapted.stage.apply(*(adapter(name, name) for name in causes))
    answers = await asyncio.gather(*(ask_known(adapted, name) for name in causes))
    for name, (status, body) in zip(causes, answers, strict=True):
        assert status == 424, body
        assert body["error"]["code"] == "adapter_load_failed", body
        assert causes[name] in body["error"]["message"], body
    for name, cause in causes.items():
        adapted.stage.kubectl(
            "wait", "--for=condition=Resolved=False", f"lora/{name}", "--timeout=30s"
        )
        (resolved,) = (
            each
            for each in (await adapted.statuses())[name]["conditions"]
            if each["type"] == "Resolved"
        )
        print(name, resolved["reason"], resolved["message"])
        assert cause in resolved["message"]
    await check_answers(adapted, adapters)
    assert await adapted.restarts() == 0
    adapted.stage.kubectl("delete", "lora", *causes)


async def check_unload_by_others(adapted: AdaptedService) -> None:
    """Copies that another client unloads leave the statuses, and wanted ones are loaded again."""
    copies = await adapted.wait_for_true_statuses()
    for name, pod in copies:
        if not name.startswith(f"{EVERYWHERE}@"):
            await adapted.unload(name, pod)
    print(f"statuses follow after {await adapted.lag_s():.1f} s")
    everywhere = {copy for copy in copies if copy[0].startswith(f"{EVERYWHERE}@")}
    assert len(everywhere) == ENGINES
    for copy in everywhere:
        await adapted.unload(*copy)
    await adapted.wait_for_copies(everywhere)
    print(f"statuses follow after {await adapted.lag_s():.1f} s")
    await adapted.wait_for(PINNED, Loaded="AllLoaded")


async def kill_twice(cluster: Cluster, pod: str) -> None:
    """Kill an engine, and again once it is restarted: the second restart is 10 s later.

    So it is away for longer than statuses may list its copies, which is 6 s.
    """
    killed = faults.container_process(cluster, pod, "engine")
    faults.kill(cluster, pod, "engine")

    async def is_restarted() -> bool:
        try:
            return faults.container_process(cluster, pod, "engine") != killed
        except faults.NoSuchContainer:
            return False

    await poll_until(is_restarted, within_s=20, what="the engine's restart")
    faults.kill(cluster, pod, "engine")


async def check_engine_kill(adapted: AdaptedService, adapters: Adapters) -> None:
    """A killed engine has lost its adapters: the statuses say so, and its copies come back."""
    victim = min(pod.name for pod in (await adapted.stage.view(NAME)).pods)
    lost = {
        copy
        for copy in await adapted.on_engines()
        if copy[1] == victim and copy[0].startswith(f"{EVERYWHERE}@")
    }
    assert lost
    await kill_twice(adapted.stage.cluster, victim)
    await adapted.stage.wait_until(
        lambda view: view.ready < ENGINES, NAME, within_s=20, what="the kill is noticed"
    )
    left = await adapted.wait_for_true_statuses()
    assert victim not in {pod for _, pod in left}
    assert await adapted.tokens(EVERYWHERE, PROMPT) == adapters.answers[EVERYWHERE]
    await adapted.stage.wait_for_engines(NAME, ENGINES, within_s=90)
    await adapted.wait_for_copies(lost)
    await adapted.wait_for_true_statuses()
    await adapted.wait_for(EVERYWHERE, Loaded="AllLoaded")


async def check_without_operator(adapted: AdaptedService, adapters: Adapters) -> None:
    """Gateways load on demand without the operator, whose successor finds the copies."""
    pods = adapted.stage.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name").split()
    (operator,) = (pod.removeprefix("pod/") for pod in pods if pod.startswith(f"pod/{OPERATOR}-"))
    faults.freeze(adapted.stage.cluster, operator, "operator", namespace=NAMESPACE)
    try:
        await check_answers(adapted, adapters)
    finally:
        faults.kill(adapted.stage.cluster, operator, "operator", namespace=NAMESPACE)
    await adapted.wait_for_true_statuses(within_s=60)


async def check_next_operator(adapted: AdaptedService) -> None:
    """The next operator finds all copies: it neither loads, nor unloads, nor changes a condition."""
    await adapted.wait_for(EVERYWHERE, Loaded="AllLoaded")
    await adapted.wait_for(PINNED, Loaded="AllLoaded")
    copies = await adapted.wait_for_true_statuses()
    conditions = {name: each["conditions"] for name, each in (await adapted.statuses()).items()}
    await adapted.restart_operator()
    await asyncio.sleep(5)
    assert await adapted.on_engines() == copies
    after = {name: each["conditions"] for name, each in (await adapted.statuses()).items()}
    assert after == conditions


async def check_deletion(adapted: AdaptedService) -> None:
    """A deleted adapter is unloaded, and its name is unknown."""
    adapted.stage.kubectl("delete", "lora", EVERYWHERE)
    for _ in range(40):
        copies = await adapted.on_engines()
        status, body = await adapted.ask(EVERYWHERE, PROMPT)
        if status == 404 and not any(name.startswith(f"{EVERYWHERE}@") for name, _ in copies):
            break
        await asyncio.sleep(0.3)
    assert (status, body["error"]["code"]) == (404, "model_not_found"), body
    assert not [name for name, _ in copies if name.startswith(f"{EVERYWHERE}@")]
    await adapted.wait_for_true_statuses()
