"""CRD and operator of two versions: a field that only one of them knows disturbs no service."""

import asyncio
import copy
import logging
from dataclasses import fields, make_dataclass

import pytest
from pydantic import Field, create_model

from penstock.api import convert
from penstock.api.crdgen import inference_service_crd
from penstock.api.engine import Engine
from penstock.api.v1alpha1 import InferenceServiceSpec
from penstock.clients.resources import DEPLOYMENTS, INFERENCE_SERVICES, PODS
from penstock.core.spec import fields as spec_fields
from penstock.core.spec.fields import REVISION_FIELDS, RevisionField
from penstock.core.spec.service import ServiceSpec
from penstock.errors import Rejected

pytestmark = pytest.mark.cluster

NEW = {"quantization": "fp8"}

CANARY = {"strategy": "Canary"}
MIRRORED = {"strategy": "Canary", "canary": {"mirror": {"percent": 10}}}
MANUAL = {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}}
AT_ONCE = {"strategy": "BlueGreen", "blueGreen": {"scaleDownDelay": "0s"}}
TWO = {"minReplicas": 2, "maxReplicas": 2}
CHANGED = {"engine": {"seed": 1}}
# Step that puts a finalizer on the pods, so that they do not end.
HELD = "held"
# The first spec, and what is done in which phase until the last phase is reached.
PHASES = {
    "Stable": ({}, ()),
    "Starting": ({"rollout": CANARY}, (("Stable", CHANGED),)),
    "Mirroring": ({"rollout": MIRRORED}, (("Stable", CHANGED),)),
    "Judging": ({"rollout": CANARY}, (("Stable", CHANGED),)),
    "Paused": ({"rollout": CANARY}, (("Stable", CHANGED), ("Judging", "pause"))),
    "Growing": (
        {"rollout": CANARY, "scaling": TWO}, (("Stable", CHANGED), ("Judging", "promote")),
    ),
    "Waiting": ({"rollout": MANUAL}, (("Stable", CHANGED),)),
    "Promoting": ({"rollout": {"strategy": "BlueGreen"}}, (("Stable", CHANGED),)),
    "Draining": ({"rollout": AT_ONCE}, (("Stable", HELD), ("Stable", CHANGED))),
    "Replacing": ({}, (("Stable", CHANGED),)),
    "RollingBack": (
        {"scaling": {"mode": "External"}, "replicas": 1},
        (("Stable", CHANGED), ("Replacing", {"replicas": 2}), ("Replacing", "abort")),
    ),
    "Stopping": ({"rollout": {"strategy": "Recreate"}}, (("Stable", HELD), ("Stable", CHANGED))),
    "Discarding": (
        {"rollout": MANUAL}, (("Stable", CHANGED), ("Waiting", HELD), ("Waiting", "abort")),
    ),
    "Rejected": ({"rollout": CANARY}, (("Stable", CHANGED), ("Judging", "abort"))),
}  # fmt: skip


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
            value = spec.model_validate(body["spec"]).engine.quantization
            written = {n: value for n, value in body["spec"].items() if n in spec_fields.RECORDED}
            return service(**values | {"shape": written}, quantization=value)

        monkeypatch.setattr("penstock.controller.reconciler.to_core", newer_to_core)
        added = RevisionField("engine.quantization", "quantization", None)
        monkeypatch.setattr(spec_fields, "REVISION_FIELDS", (*REVISION_FIELDS, added))

    return upgrade


async def settle(stand):
    for _ in range(3):
        await stand.step()
        assert stand.error is None


async def hold_pods(stand, *, held=True):
    """Add a finalizer to the pods, so that they stay when they are deleted; or remove it."""
    patch = {"metadata": {"finalizers": ["penstock.test/held"] if held else None}}
    for pod in await stand.pods():
        name = pod["metadata"]["name"]
        await stand.kube.merge(PODS, stand.namespace, name, patch, manager="test")


async def bring(stand, phase):
    """Bring a service to a phase of PHASES."""
    spec, steps = PHASES[phase]
    await stand.create(**spec)
    for at, action in steps:
        await stand.until_phase(at)
        if action is HELD:
            await hold_pods(stand)
        elif isinstance(action, str):
            await stand.order(action, (await stand.status())["candidateRevision"])
        else:
            await stand.change(**action)
    await stand.until_phase(phase)


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


@pytest.fixture
async def standing(new_stand):
    """Services in all phases and their states, by phase."""
    stands = {phase: await new_stand() for phase in PHASES}
    try:
        async with asyncio.TaskGroup() as group:
            for phase, each in stands.items():
                group.create_task(bring(each, phase))
        async with asyncio.TaskGroup() as group:
            states = {
                phase: group.create_task(lasting_state(each)) for phase, each in stands.items()
            }
        yield stands, {phase: state.result() for phase, state in states.items()}
    finally:
        for each in stands.values():
            await hold_pods(each, held=False)


async def test_an_upgrade_in_any_order_changes_no_service(
    standing, crd, newer_operator, monkeypatch
):
    stands, before = standing
    assert {phase: each["rollout"]["phase"] for phase, each in before.items()} == {
        phase: phase for phase in PHASES
    }

    async def run_operator(*, is_newer):
        newer_operator() if is_newer else monkeypatch.undo()
        for each in stands.values():
            image = "penstock-next" if is_newer else "penstock"
            each.reconciler = each.make_reconciler(each.kube, image)

    async def apply_crd(*, is_newer):
        await crd(newer_crd() if is_newer else inference_service_crd(), is_newer=is_newer)

    for first, second in ((apply_crd, run_operator), (run_operator, apply_crd)):
        for step, is_newer in ((first, True), (second, True), (second, False), (first, False)):
            await step(is_newer=is_newer)
            async with asyncio.TaskGroup() as group:
                for each in stands.values():
                    group.create_task(settle(each))
            for phase, each in stands.items():
                assert await whole_state(each) == before[phase], (phase, step.__name__, is_newer)


async def test_a_field_left_by_a_newer_operator_is_not_written_again(stand, crd, caplog):
    await stand.create()
    await stand.until_phase("Stable")
    await lasting_state(stand)
    newer = newer_crd()
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    schema["properties"]["engine"]["properties"]["quantization"] = {"type": "string"}
    await crd(newer, is_newer=True)
    left = {"status": {"engine": NEW}}
    await stand.kube.merge(INFERENCE_SERVICES, *stand.key, left, manager="test", sub="status")
    assert (await stand.status())["engine"]["quantization"] == "fp8"

    caplog.set_level(logging.INFO, "penstock.controller.reconcile_log")
    caplog.clear()
    await settle(stand)
    assert caplog.records == []
    assert (await stand.status())["engine"]["quantization"] == "fp8"
