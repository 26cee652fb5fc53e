"""A pod that waits for a ConfigMap that does not exist: its Event becomes a condition."""

import pytest

from penstock.clients.kubernetes.events import EventRecorder
from penstock.clients.kubernetes.resources import PODS
from penstock.controller.services import reconciler
from penstock.core.observed.mount_failures import EVENTS_AFTER_S

pytestmark = pytest.mark.cluster

TEMPLATE = {"parsers": {"chatTemplate": {"configMapKeyRef": {"name": "chat", "key": "a.jinja"}}}}
NO_MAP = 'MountVolume.SetUp failed for volume "chat-template" : configmap "chat" not found'


async def begin(stand):
    """Create a service whose preflight pod a node has, without its container. Return the pod."""
    await stand.create(engine=TEMPLATE)
    for _ in range(3):
        await stand.step()
    (pod,) = await stand.pods()
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    await stand.kube.merge(
        PODS, stand.namespace, pod["metadata"]["name"], {"status": {"conditions": scheduled}},
        manager="test", sub="status",
    )  # fmt: skip
    return pod


@pytest.fixture
def old_pods(monkeypatch):
    """Let the reconciler's clock be ahead, so that pods are not young."""
    real = reconciler.unix_time
    monkeypatch.setattr(reconciler, "unix_time", lambda: real() + 2 * EVENTS_AFTER_S)


async def model_ready(stand):
    conditions = (await stand.status())["conditions"]
    (found,) = (each for each in conditions if each["type"] == "ModelReady")
    return found["status"], found["reason"], found["message"]


async def test_a_missing_object_is_named_until_the_pod_gets_further(stand, old_pods):
    pod = await begin(stand)
    assert await stand.step() == EVENTS_AFTER_S  # nothing but the Events may change
    assert (await model_ready(stand))[:2] == ("Unknown", "PreflightRunning")

    events = EventRecorder(stand.kube, "kubelet")
    await events.post(pod, "Warning", "FailedMount", NO_MAP)
    assert await stand.step() == EVENTS_AFTER_S
    advice = "create what is missing, or change spec.engine.parsers.chatTemplate"
    assert await model_ready(stand) == ("False", "FailedMount", f"{NO_MAP}; {advice}")
    assert await stand.condition("Ready") == ("False", "FailedMount")
    assert await stand.condition("Stalled") == ("False", "NotStalled")  # it may still be created

    await stand.kube.merge(
        PODS, stand.namespace, pod["metadata"]["name"], {"status": {"phase": "Running"}},
        manager="test", sub="status",
    )  # fmt: skip
    await stand.step()
    assert (await model_ready(stand))[:2] == ("Unknown", "PreflightRunning")


async def test_events_of_young_pods_are_not_read(stand):
    pod = await begin(stand)
    await EventRecorder(stand.kube, "kubelet").post(pod, "Warning", "FailedMount", NO_MAP)
    assert await stand.step() == EVENTS_AFTER_S
    assert (await model_ready(stand))[:2] == ("Unknown", "PreflightRunning")
