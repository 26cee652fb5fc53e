"""An upgrade of CRD and operator, in any order and back, changes no service in any phase of a rollout."""

import asyncio

import pytest
from tests.controller.version_skew import lasting_state, newer_crd, settle, whole_state

from penstock.api.generation.crdgen import inference_service_crd
from penstock.clients.kubernetes.resources import NODES, PODS

pytestmark = pytest.mark.cluster

CANARY = {"strategy": "Canary"}
MIRRORED = {"strategy": "Canary", "canary": {"mirror": {"percent": 10}}}
MANUAL = {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}}
AT_ONCE = {"strategy": "BlueGreen", "blueGreen": {"scaleDownDelay": "0s"}}
# Pods that are held are waited for until their grace period is over.
PATIENT = {"terminationGracePeriodSeconds": 3600}
TWO = {"minReplicas": 2, "maxReplicas": 2}
CHANGED = {"engine": {"seed": 1}}
# Step that binds the pods to a node without a kubelet, so that they do not end.
HELD = "held"
NODE = "without-a-kubelet"
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
    "Draining": ({"rollout": AT_ONCE, **PATIENT}, (("Stable", HELD), ("Stable", CHANGED))),
    "Replacing": ({}, (("Stable", CHANGED),)),
    "RollingBack": (
        {"scaling": {"mode": "External"}, "replicas": 1},
        (("Stable", CHANGED), ("Replacing", {"replicas": 2}), ("Replacing", "abort")),
    ),
    "Stopping": (
        {"rollout": {"strategy": "Recreate"}, **PATIENT}, (("Stable", HELD), ("Stable", CHANGED)),
    ),
    "Discarding": (
        {"rollout": MANUAL, **PATIENT}, (("Stable", CHANGED), ("Waiting", HELD), ("Waiting", "abort")),
    ),
    "Rejected": ({"rollout": CANARY}, (("Stable", CHANGED), ("Judging", "abort"))),
}  # fmt: skip


async def hold_pods(stand):
    """Bind the pods to a node: nothing there ends them, and without one they would be marked as failed."""
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    for pod in await stand.pods():
        name = pod["metadata"]["name"]
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await stand.kube.create(PODS, stand.namespace, body, name=name, sub="binding")


async def end_pods(stand):
    for pod in await stand.pods():
        await stand.kube.delete(PODS, stand.namespace, pod["metadata"]["name"], grace_s=0)


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


@pytest.fixture
async def node(kube):
    """A node that the scheduler places no pods on."""
    body = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"unschedulable": True},
    }  # fmt: skip
    await kube.create(NODES, None, body)
    yield
    await kube.delete(NODES, None, NODE)


@pytest.fixture
async def standing(new_stand, node):
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
            await end_pods(each)


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
