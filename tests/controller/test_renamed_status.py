"""An upgrade from a version with other names of status fields moves neither traffic nor pods."""

import asyncio
import copy

import pytest

from penstock.api.generation.crdgen import inference_service_crd
from penstock.clients.kubernetes.resources import CONTROLLER_REVISIONS, INFERENCE_SERVICES
from penstock.core.observed.state_record import ANNOTATION, StateRecord

pytestmark = pytest.mark.cluster


def open_crd():
    """A CRD that keeps every field of a status, as the one of the earlier version kept its own."""
    crd = copy.deepcopy(inference_service_crd())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"] = {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True,
    }  # fmt: skip
    return crd


def old_names(status):
    """The status as the version before the renames wrote it."""
    rollout = status["rollout"]
    old = {
        "observedGeneration": status["observedGeneration"],
        "servedName": status["modelName"],
        "stableRevision": status["stableRevision"],
        "candidateRevision": status.get("candidateRevision"),
        "traffic": [
            {
                "revision": target["revision"],
                "cohort": {"Primary": "", "Control": "control"}[target["cohort"]],
                "weight": target["percent"],
            }
            for target in status["traffic"]
        ],
        "trafficGeneration": status["trafficGeneration"],
        "rollout": {
            "strategy": rollout["strategy"], "phase": rollout["phase"],
            "since": rollout["phaseTransitionTime"], "reason": rollout["message"],
            "revision": rollout.get("revision"), "replicas": rollout["replicas"],
            "weight": rollout["weightPercent"], "command": rollout["command"],
        },
    }  # fmt: skip
    return {name: value for name, value in old.items() if value is not None}


async def serve(stand, crd):
    """Apply a CRD, and wait until the API server serves statuses by it."""
    await stand.kube.apply(crd, manager="penstock")
    is_open = crd != inference_service_crd()
    for number in range(600):
        patch = {"status": {"probe": str(number)}}
        await stand.kube.merge(INFERENCE_SERVICES, *stand.key, patch, manager="test", sub="status")
        if ("probe" in await stand.status()) == is_open:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


async def write_old(stand, status, record):
    """Put the service in the state that the earlier version left: its status and its record."""
    for patch in ({"status": None}, {"status": status}):
        await stand.kube.merge(INFERENCE_SERVICES, *stand.key, patch, manager="test", sub="status")
    text = StateRecord(10**6, status).as_text() if record else None
    for each in (await stand.kube.list(CONTROLLER_REVISIONS, stand.namespace))[0]:
        if ANNOTATION in each["metadata"].get("annotations", {}):
            patch = {"metadata": {"annotations": {ANNOTATION: text}}}
            await stand.kube.merge(
                CONTROLLER_REVISIONS,
                stand.namespace,
                each["metadata"]["name"],
                patch,
                manager="test",
            )


@pytest.fixture
async def own_crd(stand):
    yield
    await stand.kube.apply(inference_service_crd(), manager="penstock")


@pytest.mark.usefixtures("own_crd")
@pytest.mark.parametrize("phase", ["Stable", "Judging", "Waiting"])
@pytest.mark.parametrize("is_pruned", [False, True])
async def test_no_traffic_moves(stand, phase, is_pruned):
    """is_pruned: the CRD was upgraded first, so the API server has pruned the old names."""
    strategies = {"Waiting": {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}}}
    await stand.create(rollout=strategies.get(phase, {"strategy": "Canary"}))
    await stand.until_phase("Stable")
    if phase != "Stable":
        await stand.change(engine={"seed": 1})
        await stand.until_phase(phase)
    await stand.step()
    before, deployments = await stand.status(), await stand.deployment_uids()

    await serve(stand, open_crd())
    await write_old(stand, old_names(before), record=is_pruned)
    assert "modelName" not in await stand.status()
    if is_pruned:
        await serve(stand, inference_service_crd())
        assert "servedName" not in await stand.status()
    stand.reconciler = stand.make_reconciler(stand.kube)
    await stand.step()
    assert stand.error is None
    await serve(stand, inference_service_crd())

    after = await stand.status()
    for name in ("traffic", "trafficGeneration", "modelName", "stableRevision"):
        assert after[name] == before[name]
    assert after.get("candidateRevision") == before.get("candidateRevision")
    assert after["rollout"] == before["rollout"]
    assert after["observedGeneration"] == before["observedGeneration"]
    assert await stand.deployment_uids() == deployments
