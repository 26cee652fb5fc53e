"""An adapter gets a dedicated pool under load, which grows and shrinks, and returns to the shared one."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from tests.support.cluster.manifests import adapter_manifest
from tests.support.cluster.penstock_command import penstock

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, LORA_ADAPTERS
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.stage import Stage, poll_until
from penstock_engine.make_model.adapters import make_adapter

ROOT = Path(__file__).parents[2]
NAME, ADAPTER, TEAM = "pooled", "isolated", "lora-pools"
POOL = f"{NAME}-{ADAPTER}"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(models: Path, pod_folder: Path) -> Path:
    """A folder with the demo's model and an adapter."""
    shutil.copytree(models / "penstock-tiny", pod_folder / "penstock-tiny")
    make_adapter(pod_folder / "penstock-tiny", pod_folder / "adapters" / ADAPTER, seed=1)
    return pod_folder


def service() -> Object:
    """The service: one engine, whatever the load, as nobody scales it."""
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"] = {"name": NAME}
    made["spec"]["engine"]["lora"] = {"maxAdapters": 4, "maxRank": 16}
    made["spec"]["scaling"] = {"mode": "External", "scaleDownDelay": "10s"}
    return made | {"spec": made["spec"] | {"replicas": 1}}


@pytest.fixture
async def team(stage: Stage, folder: Path) -> AsyncIterator[Stage]:
    """A namespace with the service, whose engine is ready, and the adapter."""
    stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    uri = f"pvc://models/adapters/{ADAPTER}"
    adapter = adapter_manifest(ADAPTER, NAME, uri, placement={"minReplicas": 1})
    try:
        stage.mount_models(folder, TEAM)
        stage.apply(service(), adapter, namespace=TEAM)
        await stage.wait_for_engines(NAME, 1, within_s=180, namespace=TEAM)
        yield stage
    finally:
        stage.kubectl("delete", "namespace", TEAM, "--wait=false")
        stage.kubectl("delete", "persistentvolume", f"models-{TEAM}", "--wait=false")


def change(stage: Stage, **spec: object) -> None:
    stage.patch(ADAPTER, spec, kind="lora", namespace=TEAM)


async def until_pool(stage: Stage, pool: str, within_s: float = 180) -> Object:
    """Wait until the pool serves. Returns the adapter's status."""
    status: Object = {}

    async def serves() -> bool:
        nonlocal status
        status = (await stage.kube.get(LORA_ADAPTERS, TEAM, ADAPTER)).get("status", {})
        return status.get("pool") == pool

    try:
        took_s = await poll_until(serves, within_s=within_s, what=f"pool {pool}")
    except TimeoutError:
        raise AssertionError(json.dumps(status, indent=1)) from None
    print(f"{pool} after {took_s:.0f} s")
    return status


async def answers(load: Load, count: int, within_s: float = 90) -> None:
    """Wait for so many more answers."""
    number = len(load.outcomes) + count

    async def are_there() -> bool:
        return len(load.outcomes) >= number

    await poll_until(are_there, within_s=within_s, what=f"{count} answers")


def pods(stage: Stage, name: str) -> list[str]:
    """Names of a service's engine pods."""
    selector = f"{SERVICE_LABEL}={name},{ROLE_LABEL}={SERVE}"
    return stage.kubectl("get", "pods", "-n", TEAM, "-l", selector, "-o", "name").split()


async def test_an_adapter_moves_to_a_dedicated_pool_and_back(team: Stage) -> None:
    of_adapter = Workload(
        ADAPTER, corpus(ROOT), prompt_words=20, max_tokens=16, seed=1, think_s=0.2
    )
    of_model = Workload(NAME, corpus(ROOT), prompt_words=20, max_tokens=8, seed=2, think_s=0.5)
    url = team.cluster.gateway_url
    async with Load(url, of_adapter) as load, Load(url, of_model) as base:
        load.set_clients(3)
        base.set_clients(1)
        await answers(load, 10)
        await move_to_pool(team, load)
        await grow_and_shrink(team, load)
        await move_back(team, load)
        await answers(load, 10)
        await asyncio.gather(load.finish(), base.finish())
        ends = Counter(each.end for each in (*load.outcomes, *base.outcomes))
        print(f"requests: {ends}")
        bad = [each for each in (*load.outcomes, *base.outcomes) if each.end is not End.DONE]
        assert bad == []


async def move_to_pool(stage: Stage, load: Load) -> None:
    """The adapter gets an engine of its own, and the shared one loses its copy."""
    change(stage, pool="Dedicated", dedicated={"maxReplicas": 2})
    status = await until_pool(stage, "Dedicated")
    assert status["dedicatedService"] == POOL
    await answers(load, 20)
    stage.kubectl(
        "wait", "-n", TEAM, "--for=condition=PoolReady", f"lora/{ADAPTER}", "--timeout=60s"
    )
    rows = stage.kubectl("get", "psvc", "-n", TEAM, "--no-headers", "--show-labels").splitlines()
    (row,) = (each for each in rows if each.startswith(f"{POOL} "))
    assert f"serving.penstock.dev/service={NAME}" in row
    (own,) = pods(stage, POOL)

    async def is_alone() -> bool:
        found = (await stage.kube.get(LORA_ADAPTERS, TEAM, ADAPTER))["status"]
        return [f"pod/{each['podName']}" for each in found.get("instances", [])] == [own]

    await poll_until(is_alone, within_s=30, what="copies in the dedicated pool alone")
    (shown,) = json.loads(await penstock(stage, "adapters", "-n", TEAM, "-o", "json"))
    assert (shown["pool"], shown["dedicatedService"]) == ("Dedicated", POOL)


async def grow_and_shrink(stage: Stage, load: Load) -> None:
    """The pool scales on the adapter's requests; the service's engine stays alone."""
    load.set_clients(64)  # twice the sequences that an engine runs at a time
    await stage.wait_for_engines(POOL, 2, within_s=180, namespace=TEAM)
    await answers(load, 50)
    assert len(pods(stage, NAME)) == 1
    load.set_clients(3)
    await stage.wait_for_engines(POOL, 1, within_s=180, namespace=TEAM)


async def move_back(stage: Stage, load: Load) -> None:
    """The shared engine serves again, and the pool is deleted with its engines."""
    change(stage, pool="Shared", dedicated=None)
    await until_pool(stage, "Shared")
    await answers(load, 20)

    async def is_gone() -> bool:
        services, _ = await stage.kube.list(INFERENCE_SERVICES, TEAM)
        return POOL not in {each["metadata"]["name"] for each in services} and not pods(stage, POOL)

    await poll_until(is_gone, within_s=90, what="the pool is deleted")
