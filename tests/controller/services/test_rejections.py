"""Objects that the API server rejects: how long they are cached, and which revisions they affect."""

import pytest

from penstock.clients.kubernetes.resources import DEPLOYMENTS
from penstock.controller.services import plan_writer, reconciler
from penstock.controller.services.rejections import REJECTION_TTL_S, RejectionCache
from penstock.core.spec.service import REVISION_LABEL
from penstock.errors import Forbidden

BODY = {"kind": "Pod", "spec": {"nodeName": "a"}}
REJECTION = ("PodTemplateRejected", "no")


def test_a_rejection_is_cached_for_one_body_until_it_expires():
    rejections = RejectionCache()
    rejections.add("u", BODY, REJECTION, 0.0)
    assert rejections.get("u", dict(BODY), 1.0) == REJECTION
    assert rejections.get("u", {**BODY, "spec": {}}, 1.0) is None
    assert rejections.get("u", BODY | {"metadata": {"resourceVersion": "2"}}, 1.0) == REJECTION
    assert rejections.get("other", BODY, 1.0) is None
    assert rejections.expiry_s("u", 20.0) == REJECTION_TTL_S - 20.0
    assert rejections.expiry_s("other", 20.0) is None
    assert rejections.get("u", BODY, REJECTION_TTL_S) is None
    assert rejections.expiry_s("u", REJECTION_TTL_S) is None


def test_expired_and_forgotten_rejections_are_dropped():
    rejections = RejectionCache()
    for number in range(100):
        rejections.add("u", {"n": number}, REJECTION, number * REJECTION_TTL_S)
    assert len(rejections._entries) == 1
    rejections.add("v", BODY, REJECTION, 99 * REJECTION_TTL_S)
    rejections.forget("u")
    assert rejections._entries.keys() == {("v", next(iter(rejections._entries))[1])}


@pytest.fixture
def now(monkeypatch):
    """Offset of the reconciler's clock in seconds, as a list of one number that tests change."""
    ahead = [0.0]
    real = reconciler.monotonic
    for module in (reconciler, plan_writer):
        monkeypatch.setattr(module, "monotonic", lambda: real() + ahead[0])
    return ahead


async def names(stand):
    return [pod["metadata"]["name"] for pod in await stand.pods()]


@pytest.mark.cluster
async def test_a_corrected_variant_is_sent_at_once(stand, refuse):
    """Variants do not change the revision: rejections are cached by body."""
    variant = {"name": "spot", "pricePerHour": "1", "nodeSelector": {"pool": "forbidden"}}
    await refuse(
        "pods", "object.spec.?nodeSelector.pool != optional.of('forbidden')", a_pod("forbidden")
    )
    await stand.create(objectives={"ttft": "2s", "tpot": "100ms"}, variants=[variant])
    for _ in range(3):
        await stand.step()
    assert await stand.condition("ModelReady") == ("False", "PodTemplateRejected")
    assert await names(stand) == []

    await stand.change(variants=[variant | {"nodeSelector": {"pool": "spot"}}])
    await stand.step()
    assert len(await names(stand)) == 1


def a_pod(pool=None):
    selector = {"nodeSelector": {"pool": pool}} if pool else {}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {},
        "spec": {"containers": [{"name": "c", "image": "i"}]} | selector,
    }  # fmt: skip


def a_deployment(labels):
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod()["spec"]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": labels},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }  # fmt: skip


@pytest.mark.cluster
async def test_a_rejected_body_is_sent_again_after_the_ttl(stand, refuse, now):
    policy = await refuse("pods", "false", a_pod())
    await stand.create()
    for _ in range(3):
        wake_s = await stand.step()
    assert await stand.condition("ModelReady") == ("False", "PodTemplateRejected")
    assert 0 < wake_s <= REJECTION_TTL_S

    await policy.remove()
    await stand.step()
    assert await names(stand) == []

    now[0] = REJECTION_TTL_S
    await stand.step()
    assert len(await names(stand)) == 1


@pytest.mark.cluster
async def test_resume_sends_a_rejected_revision_again(stand, refuse):
    await stand.create()
    await stand.until_phase("Stable")
    policy = await refuse("pods", "false", a_pod())
    await stand.change(engine={"seed": 1})
    await stand.until_phase("Rejected")
    rejected = (await stand.status())["rollout"]["rejected"]
    assert rejected["message"].startswith("PodTemplateRejected")

    await policy.remove()
    await stand.order("resume", rejected["revision"])

    async def serves():
        return (await stand.status()).get("stableRevision") == rejected["revision"]

    await stand.until(serves)


@pytest.mark.cluster
@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
async def test_a_rejected_repair_of_stable_does_not_stop_a_new_revision(stand, refuse, reason):
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
    assert isinstance(stand.error, Forbidden if reason == "Forbidden" else type(None))

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
