"""CRD and operator of a later version, which has one more field, and the state that they must not change."""

import asyncio
import copy
from dataclasses import replace

from pydantic import Field, create_model

from penstock.api.conversion import convert
from penstock.api.generation.crdgen import inference_service_crd
from penstock.api.inferenceservice.engine import Engine
from penstock.api.inferenceservice.kind import InferenceServiceSpec
from penstock.clients.kubernetes.resources import DEPLOYMENTS, INFERENCE_SERVICES
from penstock.core.spec.fields import RECORDED
from penstock.errors import Rejected

# The engine of a spec with the further field.
NEW = {"sparsity": "2:4"}
PATH = "engine.sparsity"


def newer_crd():
    """Return the CRD of this version with one more field."""
    crd = copy.deepcopy(inference_service_crd())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    added = {"type": "string", "description": "Pattern of zeros in the weights."}
    spec["properties"]["engine"]["properties"]["sparsity"] = added
    return crd


async def apply_crd(stand, crd, *, is_newer):
    """Apply a CRD and wait until the API server uses it. is_newer: whether it has the further field."""
    await stand.kube.apply(crd, manager="penstock")
    for _ in range(600):
        if await _knows_the_field(stand) == is_newer:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


async def _knows_the_field(stand):
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "probe", "namespace": stand.namespace},
        "spec": {"model": {"uri": "pvc://none/tiny"}, "engine": NEW},
    }
    try:
        await stand.kube.create(
            INFERENCE_SERVICES, stand.namespace, body, dryRun="All", fieldValidation="Strict"
        )
    except Rejected:
        return False
    return True


def upgrade_operator(monkeypatch):
    """Make the operator know the further field."""
    engine = create_model(
        "NewerEngine", __base__=Engine, sparsity=(str | None, Field(default=None))
    )
    spec = create_model("NewerSpec", __base__=InferenceServiceSpec, engine=(engine, engine()))
    to_core = convert.to_core

    def newer_to_core(body):
        known = to_core(body)
        value = spec.model_validate(body["spec"]).engine.sparsity
        written = {n: value for n, value in body["spec"].items() if n in RECORDED}
        settings = known.settings if value is None else {**known.settings, PATH: value}
        return replace(known, recorded_fields=written, settings=settings)

    monkeypatch.setattr("penstock.controller.services.reconciler.to_core", newer_to_core)


async def settle(stand):
    for _ in range(3):
        await stand.step()
        assert stand.error is None


async def lasting_state(stand):
    """The state once it does not change any more, as Kubernetes' controllers may still write."""
    last = None
    for _ in range(30):
        await settle(stand)
        state = await whole_state(stand)
        if state == last:
            return state
        last = state
        await asyncio.sleep(1)
    raise AssertionError(last)


async def whole_state(stand):
    """All that an upgrade must not change."""
    status = await stand.status()
    deployments, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    return {
        "pods": {pod["metadata"]["uid"] for pod in await stand.pods()},
        "deployments": {
            each["metadata"]["uid"]: (each["metadata"]["generation"], each["spec"])
            for each in deployments
        },
        "conditions": {
            c["type"]: (c["status"], c["reason"], c["lastTransitionTime"])
            for c in status["conditions"]
        },
        "rollout": status["rollout"],
        "routed": [status.get(name) for name in ("traffic", "mirror", "trafficGeneration")],
        "revisions": [status.get(name) for name in ("stableRevision", "candidateRevision")],
    }
