"""Refusals by the API server: how long they are remembered, and which revisions they affect."""

import pytest

from penstock.clients.resources import DEPLOYMENTS
from penstock.controller import reconciler as reconcilers
from penstock.controller.refusals import REFUSED_FOR_S, Refusals
from penstock.core.spec.service import REVISION_LABEL
from penstock.errors import Forbidden

BODY = {"kind": "Pod", "spec": {"nodeName": "a"}}
REFUSAL = ("PodTemplateRejected", "no")


def test_a_refusal_is_of_one_body_and_of_some_minutes():
    refusals = Refusals()
    refusals.add("u", BODY, REFUSAL, 0.0)
    assert refusals.get("u", dict(BODY), 1.0) == REFUSAL
    assert refusals.get("u", {**BODY, "spec": {}}, 1.0) is None
    assert refusals.get("other", BODY, 1.0) is None
    assert refusals.expiry_s("u", 20.0) == REFUSED_FOR_S - 20.0
    assert refusals.expiry_s("other", 20.0) is None
    assert refusals.get("u", BODY, REFUSED_FOR_S) is None
    assert refusals.expiry_s("u", REFUSED_FOR_S) is None


def test_what_is_over_or_forgotten_takes_no_memory():
    refusals = Refusals()
    for number in range(100):
        refusals.add("u", {"n": number}, REFUSAL, number * REFUSED_FOR_S)
    assert len(refusals._entries) == 1
    refusals.add("v", BODY, REFUSAL, 99 * REFUSED_FOR_S)
    refusals.forget("u")
    assert refusals._entries.keys() == {("v", next(iter(refusals._entries))[1])}


@pytest.fixture
def now(monkeypatch):
    """Seconds that the reconciler's clock is ahead."""
    ahead = [0.0]
    real = reconcilers.monotonic
    monkeypatch.setattr(reconcilers, "monotonic", lambda: real() + ahead[0])
    return ahead


async def names(stand):
    return [pod["metadata"]["name"] for pod in await stand.pods()]


@pytest.mark.cluster
async def test_a_mended_variant_is_sent(stand):
    """Variants are no part of the revision: it is the body that was refused."""
    variant = {"name": "spot", "pricePerHour": 1.0, "nodeSelector": {"pool": "no label value"}}
    await stand.create(objectives={"ttft": "2s", "tpot": "100ms"}, variants=[variant])
    for _ in range(3):
        await stand.step()
    assert await stand.condition("ModelReady") == ("False", "PodTemplateRejected")
    assert await names(stand) == []

    await stand.change(variants=[variant | {"nodeSelector": {"pool": "spot"}}])
    await stand.step()
    assert len(await names(stand)) == 1


def a_pod():
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip


def a_deployment(labels):
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod()["spec"]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": labels},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }  # fmt: skip


@pytest.mark.cluster
async def test_what_a_policy_allows_again_is_sent_again_after_a_while(stand, refuse, now):
    policy = await refuse("pods", "false", a_pod())
    await stand.create()
    for _ in range(3):
        wake_s = await stand.step()
    assert await stand.condition("ModelReady") == ("False", "PodTemplateRejected")
    assert 0 < wake_s <= REFUSED_FOR_S

    await policy.lift()
    await stand.step()
    assert await names(stand) == []

    now[0] = REFUSED_FOR_S
    await stand.step()
    assert len(await names(stand)) == 1


@pytest.mark.cluster
async def test_resume_sends_a_refused_revision_again(stand, refuse):
    await stand.create()
    await stand.until_phase("Stable")
    policy = await refuse("pods", "false", a_pod())
    await stand.change(engine={"seed": 1})
    await stand.until_phase("Rejected")
    rejected = (await stand.status())["rollout"]["rejected"]
    assert rejected["reason"].startswith("PodTemplateRejected")

    await policy.lift()
    await stand.order("resume", rejected["revision"])

    async def serves():
        return (await stand.status()).get("stableRevision") == rejected["revision"]

    await stand.until(serves)


@pytest.mark.cluster
@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
async def test_a_refused_repair_of_what_serves_stops_no_new_revision(stand, refuse, reason):
    await stand.create(rollout={"strategy": "BlueGreen"})
    await stand.until_phase("Stable")
    (deployment,), _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    old = deployment["metadata"]["labels"][REVISION_LABEL]
    await break_template(stand, deployment)
    await refuse(
        "deployments", f"object.metadata.labels['{REVISION_LABEL}'] != '{old}'",
        a_deployment({REVISION_LABEL: old}), reason,
    )  # fmt: skip
    await stand.step()
    is_told = stand.error is None if reason == "Invalid" else isinstance(stand.error, Forbidden)
    assert is_told

    await stand.change(engine={"seed": 1})

    async def serves():
        return [share["revision"] for share in (await stand.status())["traffic"]] != [old]

    await stand.until(serves)
    assert (await stand.status())["rollout"].get("rejected") is None


async def break_template(stand, deployment):
    """Change a Deployment's template as a user could, so that the operator has to repair it."""
    patch = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
    name = deployment["metadata"]["name"]
    await stand.kube.merge(DEPLOYMENTS, stand.namespace, name, patch, manager="test")
