"""CRD and operator of two versions: a field that only one of them knows disturbs no service."""

import asyncio
import copy
from dataclasses import fields, make_dataclass

import pytest
from pydantic import Field, create_model

from penstock.api import convert
from penstock.api.crdgen import inference_service_crd
from penstock.api.engine import Engine
from penstock.api.v1alpha1 import InferenceServiceSpec
from penstock.clients.resources import INFERENCE_SERVICES
from penstock.core.spec import fields as spec_fields
from penstock.core.spec.fields import REVISION_FIELDS, RevisionField
from penstock.core.spec.service import ServiceSpec
from penstock.errors import Rejected

pytestmark = pytest.mark.cluster

NEW = {"quantization": "fp8"}


def newer_crd():
    """Return the CRD of this version with one more field."""
    crd = copy.deepcopy(inference_service_crd())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    added = {"type": "string", "description": "Number format of the weights."}
    spec["properties"]["engine"]["properties"]["quantization"] = added
    return crd


@pytest.fixture
async def crd(stand):
    """Applies a CRD and waits until the API server uses it. This version's is back after the test."""
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "probe", "namespace": stand.namespace},
        "spec": {"model": {"uri": "pvc://none/tiny"}, "engine": NEW},
    }

    async def knows_the_field():
        try:
            await stand.kube.create(
                INFERENCE_SERVICES, stand.namespace, body, dryRun="All", fieldValidation="Strict"
            )
        except Rejected:
            return False
        return True

    async def apply(crd, is_newer):
        await stand.kube.apply(crd, manager="penstock")
        for _ in range(600):
            if await knows_the_field() == is_newer:
                return
            await asyncio.sleep(0.1)
        raise TimeoutError

    yield apply
    await apply(inference_service_crd(), is_newer=False)


@pytest.fixture
def newer_operator(monkeypatch):
    """Makes the operator know the further field."""

    def upgrade():
        engine = create_model(
            "NewerEngine", __base__=Engine, quantization=(str | None, Field(default=None))
        )
        spec = create_model("NewerSpec", __base__=InferenceServiceSpec, engine=(engine, engine()))
        service = make_dataclass(
            "NewerService", [("quantization", str | None, None)], bases=(ServiceSpec,), frozen=True
        )
        to_core = convert.to_core

        def newer_to_core(body):
            known = to_core(body)
            values = {field.name: getattr(known, field.name) for field in fields(known)}
            said = spec.model_validate(body["spec"]).engine.quantization
            return service(**values, quantization=said)

        monkeypatch.setattr("penstock.controller.reconciler.to_core", newer_to_core)
        added = RevisionField("engine.quantization", "quantization", None)
        monkeypatch.setattr(spec_fields, "REVISION_FIELDS", (*REVISION_FIELDS, added))

    return upgrade


async def settle(stand):
    for _ in range(3):
        await stand.step()
        assert stand.error is None


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
    assert (await stand.body())["spec"]["engine"]["quantization"] == "fp8"
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
