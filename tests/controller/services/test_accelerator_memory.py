"""The preflight of a service on accelerators, against a real API server with nodes that have a label."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from penstock.clients.kubernetes.resources import DEPLOYMENTS, NODES, PODS, RESOURCE_SLICES
from penstock.core.observed.accelerator_memory import GPU_DRIVER, MEMORY_LABEL
from penstock.core.spec.service import PREFLIGHT, ROLE_LABEL, VARIANT_LABEL
from penstock_engine.make_model.make import make

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"
ENGINE = Path(sys.executable).with_name("penstock-engine")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny"
    make(directory, [ROOT / "README.md"], seconds=1, steps=1, seed=1)
    return directory


@pytest.fixture
async def add_node(kube, namespace):
    """Function that creates a node with two GPUs of that many MiB, in a pool of the namespace's name."""
    names = []

    async def add(mib):
        name = f"{namespace}-{mib}"
        labels = {MEMORY_LABEL: str(mib), "pool": namespace}
        await kube.create(NODES, None, {"metadata": {"name": name, "labels": labels}})
        names.append(name)
        status = {"status": {"allocatable": {GPU: "2"}, "capacity": {GPU: "2"}}}
        await kube.merge(NODES, None, name, status, manager="test", sub="status")

    yield add
    for name in names:
        await kube.delete(NODES, None, name)


async def preflight_of(stand, reads_nodes=True, **changes):
    """The preflight pod of a service with a GPU in the namespace's pool."""
    stand.reconciler = stand.make_reconciler(stand.kube, reads_nodes=reads_nodes)
    spec = {
        "resources": {"limits": {GPU: 1}},
        "template": {"spec": {"nodeSelector": {"pool": stand.namespace}}},
    }
    await stand.create(**(spec | changes))
    while not (pods := await stand.pods()):
        await stand.step()
    (pod,) = pods
    assert pod["metadata"]["labels"][ROLE_LABEL] == PREFLIGHT
    return pod


async def run_as_its_container(stand, pod, model_dir, log):
    """Run the preflight's command on this machine, and write its verdict as the kubelet would."""
    (container,) = pod["spec"]["containers"]
    replaced = {container["args"][1]: str(model_dir), "/dev/termination-log": str(log)}
    args = [replaced.get(arg, arg) for arg in container["args"]]
    env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    process = await asyncio.create_subprocess_exec(ENGINE, *args, env=os.environ | env)
    code = await process.wait()
    message = log.read_text()
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [
            {
                "name": container["name"], "image": "penstock", "imageID": "", "ready": False,
                "restartCount": 0, "state": {"terminated": ended},
            }
        ],
    }  # fmt: skip
    await stand.kube.merge(
        PODS, stand.namespace, pod["metadata"]["name"], {"status": status},
        manager="test", sub="status",
    )  # fmt: skip
    return json.loads(message)


async def test_a_model_too_large_for_the_nodes_is_a_condition_before_an_engine(
    stand, add_node, model_dir, tmp_path
):
    await add_node(64)
    await add_node(80_000)
    pod = await preflight_of(stand)
    verdict = await run_as_its_container(stand, pod, model_dir, tmp_path / "log")
    assert verdict["reason"] == "MemoryTooSmall"
    for _ in range(3):
        await stand.step()
    assert await stand.condition("ModelReady") == ("False", "MemoryTooSmall")
    conditions = {c["type"]: c for c in (await stand.status())["conditions"]}
    assert "take accelerators with at least" in conditions["ModelReady"]["message"]
    assert (await stand.kube.list(DEPLOYMENTS, stand.namespace))[0] == []


async def test_a_corrected_variant_is_checked_again(stand, model_dir, tmp_path):
    """Variants make no revision, and the name of the preflight has only the revision."""

    def accelerators_of(memory):
        return [
            {
                "name": "a", "pricePerHour": "1", "acceleratorMemory": memory,
                "resources": {"limits": {GPU: 1}},
            }
        ]  # fmt: skip

    failed = await preflight_of(
        stand, objectives={"ttft": "2s"}, variants=accelerators_of("64Mi"), reads_nodes=False
    )
    verdict = await run_as_its_container(stand, failed, model_dir, tmp_path / "log")
    assert verdict["reason"] == "MemoryTooSmall"
    for _ in range(3):
        await stand.step()
    (kept,) = await stand.pods()
    assert kept["metadata"]["uid"] == failed["metadata"]["uid"]

    await stand.change(variants=accelerators_of("24Gi"))
    for _ in range(3):
        await stand.step()
    (pod,) = await stand.pods()
    assert pod["metadata"]["uid"] != failed["metadata"]["uid"]
    verdict = await run_as_its_container(stand, pod, model_dir, tmp_path / "second-log")
    assert verdict["ok"]
    for _ in range(3):
        await stand.step()
    assert await stand.condition("ModelReady") == ("True", "Fits")


async def test_a_model_that_one_variant_cannot_hold_is_refused_by_its_name(
    stand, model_dir, tmp_path
):
    def variant(name, memory):
        return {
            "name": name, "pricePerHour": "1", "acceleratorMemory": memory,
            "resources": {"limits": {GPU: 1}},
        }  # fmt: skip

    large, small = variant("large", "24Gi"), variant("small", "64Mi")
    stand.reconciler = stand.make_reconciler(stand.kube)
    await stand.create(objectives={"ttft": "2s"}, variants=[large, small])
    for _ in range(3):
        await stand.step()
    pods = {pod["metadata"]["labels"][VARIANT_LABEL]: pod for pod in await stand.pods()}
    assert set(pods) == {"large", "small"}
    for name, pod in pods.items():
        await run_as_its_container(stand, pod, model_dir, tmp_path / name)
    for _ in range(3):
        await stand.step()
    assert await stand.condition("ModelReady") == ("False", "MemoryTooSmall")
    conditions = {c["type"]: c for c in (await stand.status())["conditions"]}
    assert conditions["ModelReady"]["message"].startswith("on variant small: ")
    assert conditions["Stalled"]["status"] == "True"
    assert (await stand.kube.list(DEPLOYMENTS, stand.namespace))[0] == []

    await stand.change(variants=[large])
    for _ in range(4):
        await stand.step()
    assert await stand.condition("ModelReady") == ("True", "Fits")
    assert len((await stand.kube.list(DEPLOYMENTS, stand.namespace))[0]) == 1


async def test_a_model_that_fits_is_served(stand, add_node, model_dir, tmp_path):
    await add_node(24_000)
    pod = await preflight_of(stand)
    verdict = await run_as_its_container(stand, pod, model_dir, tmp_path / "log")
    assert verdict["accelerator_memory_bytes"] == 24_000 * 2**20
    assert (verdict["max_num_seqs"], verdict["max_num_batched_tokens"]) == (256, 2048)
    for _ in range(3):
        await stand.step()
    assert len((await stand.kube.list(DEPLOYMENTS, stand.namespace))[0]) == 1


async def test_a_claim_gets_the_memory_that_resource_slices_say(
    stand, namespace, model_dir, tmp_path
):
    pool = {"name": namespace, "generation": 1, "resourceSliceCount": 1}
    device = {"name": "gpu-0", "capacity": {"memory": {"value": "64Mi"}}}
    spec = {"driver": GPU_DRIVER, "pool": pool, "nodeName": namespace, "devices": [device]}
    await stand.kube.create(RESOURCE_SLICES, None, {"metadata": {"name": namespace}, "spec": spec})
    try:
        claim = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
        pod = await preflight_of(
            stand, resources={"claims": [{"name": "gpu"}]},
            template={"spec": {"resourceClaims": [claim]}},
        )  # fmt: skip
    finally:
        await stand.kube.delete(RESOURCE_SLICES, None, namespace)
    assert "resourceClaims" not in pod["spec"]
    verdict = await run_as_its_container(stand, pod, model_dir, tmp_path / "log")
    assert verdict["reason"] == "MemoryTooSmall"


async def test_memory_is_unknown_to_an_operator_that_may_not_read_nodes(
    stand, add_node, model_dir, tmp_path
):
    await add_node(64)
    pod = await preflight_of(stand, reads_nodes=False)
    verdict = await run_as_its_container(stand, pod, model_dir, tmp_path / "log")
    assert (verdict["ok"], verdict["accelerator_memory_bytes"]) == (True, None)
    await stand.step()
    conditions = {c["type"]: c for c in (await stand.status())["conditions"]}
    assert "memory is unknown" in conditions["ModelReady"]["message"]
