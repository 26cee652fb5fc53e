"""CRD and operator of two versions: a field that only one of them knows disturbs no service."""

import asyncio
import copy
import logging

import pytest
from tests.controller.version_skew import NEW, lasting_state, newer_crd, settle

from penstock.api.generation.crdgen import inference_service_crd
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES

pytestmark = pytest.mark.cluster


async def state(stand):
    status = await stand.status()
    settled = [(c["type"], c["status"], c["lastTransitionTime"]) for c in status["conditions"]]
    return status["stableRevision"], status["traffic"], settled, await stand.deployment_uids()


async def test_a_newer_crd_and_an_older_operator(stand, crd):
    await stand.create()
    await stand.until_phase("Stable")
    await settle(stand)
    before = await state(stand)

    await crd(newer_crd(), is_newer=True)
    await settle(stand)
    assert await state(stand) == before

    await stand.change(engine=NEW)
    assert (await stand.body())["spec"]["engine"]["sparsity"] == "2:4"
    await settle(stand)
    assert await state(stand) == before
    assert (await stand.status())["observedGeneration"] == 2


async def test_a_newer_operator_and_an_older_crd(stand, crd, newer_operator):
    await stand.create()
    await stand.until_phase("Stable")
    await settle(stand)
    before = await state(stand)

    newer_operator()
    await settle(stand)
    assert await state(stand) == before
    await stand.change(engine=NEW)  # pruned
    await settle(stand)
    assert await state(stand) == before

    await crd(newer_crd(), is_newer=True)
    await settle(stand)
    assert await state(stand) == before
    await stand.change(engine=NEW)
    await stand.step()
    assert (await stand.status())["rollout"]["phase"] == "Replacing"


async def test_an_operator_that_writes_status_fields_unknown_to_the_crd(stand, crd):
    await stand.create()
    await stand.until_phase("Stable")
    await settle(stand)
    before = await state(stand)

    older = copy.deepcopy(inference_service_crd())
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["url"]
    await stand.kube.apply(older, manager="penstock")
    for _ in range(600):
        await stand.step()
        if "url" not in await stand.status():
            break
        await asyncio.sleep(0.1)
    await settle(stand)
    version = (await stand.body())["metadata"]["resourceVersion"]
    await settle(stand)
    assert await state(stand) == before
    assert "url" not in await stand.status()
    assert (await stand.body())["metadata"]["resourceVersion"] == version


async def test_a_field_left_by_a_newer_operator_is_not_written_again(stand, crd, caplog):
    await stand.create()
    await stand.until_phase("Stable")
    await lasting_state(stand)
    newer = newer_crd()
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    schema["properties"]["engine"]["properties"]["sparsity"] = {"type": "string"}
    await crd(newer, is_newer=True)
    left = {"status": {"engine": NEW}}
    await stand.kube.merge(INFERENCE_SERVICES, *stand.key, left, manager="test", sub="status")
    assert (await stand.status())["engine"]["sparsity"] == "2:4"

    caplog.set_level(logging.INFO, "penstock.controller.services.reconcile_log")
    caplog.clear()
    await settle(stand)
    assert caplog.records == []
    assert (await stand.status())["engine"]["sparsity"] == "2:4"
