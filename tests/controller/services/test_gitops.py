"""kstatus (Flux) and Argo CD over statuses of the real API server, in every state of a service."""

import asyncio

import pytest
from tests.controller.services.gitops import argo_health, kstatus

from penstock.api.conversion.convert import InvalidService
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, PODS
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.route_status import RouteInputs, route_status

pytestmark = pytest.mark.cluster

ROLLED_OUT = ("Current", "Healthy", "True")
# Ready is True while the stable revision answers, whatever is rolled out.
COMING, ROLLING = ("InProgress", "Progressing", "False"), ("InProgress", "Progressing", "True")
AWAITING = ("InProgress", "Suspended", "True")
FAILED, REJECTED = ("Failed", "Degraded", "False"), ("Failed", "Degraded", "True")


async def health(stand):
    """Health by kstatus and by Argo CD, and Ready. No service may be reconciled and stalled at once."""
    body = await stand.body()
    conditions = {c["type"]: c["status"] for c in body["status"].get("conditions", [])}
    assert not conditions.get("Reconciling") == conditions.get("Stalled") == "True"
    return kstatus(body), argo_health(body), conditions.get("Ready")


async def reason(stand, kind):
    return (await stand.condition(kind))[1]


async def serve(stand, **spec):
    await stand.create(**spec)
    await stand.until_phase("Stable")
    await stand.step()


async def test_a_canary_from_its_first_revision_to_its_rejection(stand):
    await stand.create(rollout={"strategy": "Canary"})
    assert (await stand.status()) == {"observedGeneration": -1}
    assert await health(stand) == ("InProgress", "Progressing", None)

    for _ in range(3):
        await stand.step()
        assert await health(stand) == COMING
    assert await reason(stand, "Reconciling") == "Starting"
    await stand.until_phase("Stable")
    await stand.step()
    assert await health(stand) == ROLLED_OUT

    await stand.change(engine={"seed": 1})
    assert await health(stand) == ROLLING  # not seen by the operator yet
    await stand.until_phase("Judging")
    assert await health(stand) == ROLLING
    revision = (await stand.status())["candidateRevision"]
    await stand.order("pause", revision)
    await stand.until_phase("Paused")
    assert await health(stand) == AWAITING
    assert await reason(stand, "Reconciling") == "AwaitingPromotion"

    await stand.order("abort", revision)
    await stand.until_phase("Discarding")
    assert await health(stand) == ROLLING
    await stand.until_phase("Rejected")
    await stand.step()
    assert await health(stand) == REJECTED
    assert await reason(stand, "Stalled") == "Rejected"

    await stand.change(engine={"seed": None})
    await stand.until_phase("Stable")
    await stand.step()
    assert await health(stand) == ROLLED_OUT
    await stand.order("pause", revision)  # without effect
    going = await stand.body()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert kstatus(going) == "Terminating"


@pytest.mark.parametrize(
    ("rollout", "phase", "expected"),
    [
        ({"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}}, "Waiting", AWAITING),
        ({"strategy": "Rolling"}, "Replacing", ROLLING),
        ({"strategy": "Recreate"}, "Stopping", ("InProgress", "Progressing", "False")),
    ],
)
async def test_a_rollout_of_another_strategy(stand, rollout, phase, expected):
    await serve(stand, rollout=rollout)
    await stand.change(engine={"seed": 1})
    await stand.until_phase(phase)
    await stand.step()
    assert await health(stand) == expected


async def test_a_first_revision_that_does_not_come_up_in_time(stand):
    """Its pods come up late: the failure is withdrawn."""
    await stand.create(rollout={"progressDeadline": "2s"})
    await stand.step()
    assert await health(stand) == COMING

    async def is_late():
        return (await health(stand))[0] == "Failed"

    for _ in range(100):
        await stand.step()
        if await is_late():
            break
        await asyncio.sleep(0.1)
    assert await health(stand) == FAILED
    assert await reason(stand, "Stalled") == "ProgressDeadlineExceeded"
    await stand.until_phase("Stable")
    await stand.step()
    assert await health(stand) == ROLLED_OUT


async def test_a_refused_first_revision(stand, refuse):
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip
    await refuse("pods", "false", pod)
    await stand.create()
    for _ in range(2):
        await stand.step()
    assert await health(stand) == FAILED
    assert await reason(stand, "Stalled") == "PodTemplateRejected"


async def test_a_model_name_that_is_in_use(stand):
    metadata = {
        "namespace": stand.namespace, "name": "older", "uid": "u",
        "creationTimestamp": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    older = {"metadata": metadata, "spec": {"model": {"uri": "pvc://none", "name": "chat"}}}
    stand.names.update("InferenceService", (stand.namespace, "older"), older)
    await stand.create()
    await stand.step()
    await stand.step()
    assert await health(stand) == FAILED
    assert await reason(stand, "Ready") == "ModelNameInUse"


async def test_an_invalid_spec(stand, monkeypatch):
    """A spec of another version of the CRD may reach the operator like this."""
    await serve(stand)

    def refuse(body):
        raise InvalidService("spec.model.uri: no")

    monkeypatch.setattr("penstock.controller.services.reconciler.to_core", refuse)
    await stand.step()
    assert await health(stand) == ("Failed", "Degraded", "True")
    monkeypatch.undo()
    await stand.step()
    assert await health(stand) == ROLLED_OUT


async def test_external_without_replicas(stand):
    await stand.create(scaling={"mode": "External"}, replicas=0)

    async def is_empty():
        ready = [c["reason"] for c in (await stand.status())["conditions"] if c["type"] == "Ready"]
        return ready == ["ScaledToZero"]

    await stand.until(is_empty)
    assert await health(stand) == ROLLED_OUT
    conditions = {c["type"] for c in (await stand.status())["conditions"]}
    assert "ScalingActive" not in conditions


async def test_an_engine_that_died_and_a_condition_of_another_writer(stand):
    await serve(stand)
    foreign = {
        "type": "backup.example.com/Done", "status": "True", "reason": "Done", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    conditions = [*(await stand.status())["conditions"], foreign]
    await stand.kube.merge(
        INFERENCE_SERVICES, *stand.key, {"status": {"conditions": conditions}}, manager="other",
        sub="status",
    )  # fmt: skip
    for pod in await stand.pods():
        await stand.kube.delete(PODS, stand.namespace, pod["metadata"]["name"])
    await stand.step()
    assert await health(stand) == COMING
    assert await reason(stand, "Reconciling") == "Settled"
    assert foreign in (await stand.status())["conditions"]


SERVING = {
    "metadata": {"name": "chat", "namespace": "a"},
    "status": {"conditions": [{"type": "TrafficAvailable", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("services", "applied", "expected"),
    [
        ({"chat": SERVING}, {"gateway": 1}, ("Current", "Healthy")),
        ({"chat": SERVING}, {"gateway": 0}, ("InProgress", "Progressing")),
        ({}, {"gateway": 1}, ("InProgress", "Progressing")),  # the service may come
    ],
)
def test_a_route(services, applied, expected):
    metadata = {
        "name": "front", "namespace": "a", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    spec = {"modelName": "front", "rules": [{"name": "all", "backendRefs": [{"name": "chat"}]}]}
    route = {"kind": "ModelRoute", "metadata": metadata, "spec": spec}
    inputs = RouteInputs(NameIndex(), services, {}, applied)
    route["status"] = route_status(route, inputs, "2026-01-01T00:00:00Z")
    assert (kstatus(route), argo_health(route)) == expected
