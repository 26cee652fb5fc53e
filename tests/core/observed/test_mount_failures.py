"""Pods that wait for a volume, and what their Events say about it."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.observed.children import ObservedState
from penstock.core.observed.mount_failures import (
    is_due,
    mount_failure,
    pods_to_explain,
    with_trouble,
)
from penstock.core.observed.pods import ObservedPod
from penstock.core.reconcile.missing_objects import with_advice

CREATED_AT, CREATED_S = "2026-01-01T00:00:00Z", 1767225600.0
NO_MAP = 'MountVolume.SetUp failed for volume "chat-template" : configmap "chat" not found'


def observed_pod(scheduled: str = "True", **status: Any) -> ObservedPod:
    conditions = [{"type": "PodScheduled", "status": scheduled}]
    metadata = {"name": "x", "uid": "u", "creationTimestamp": CREATED_AT}
    return ObservedPod.of({"metadata": metadata, "status": {"conditions": conditions, **status}})


def containers(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "engine", "state": state}]}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (observed_pod(), True),
        (
            observed_pod(phase="Pending", **containers(waiting={"reason": "ContainerCreating"})),
            True,
        ),
        (observed_pod(phase="Pending", **containers(waiting={"reason": "ErrImagePull"})), False),
        (observed_pod("False"), False),
        (observed_pod(phase="Running", **containers(running={})), False),
        (observed_pod(phase="Failed"), False),
    ],
)
def test_a_pod_that_waits_for_its_node(pod: ObservedPod, expected: bool) -> None:
    assert pod.is_creating is expected


def engine(name: str, revision: str = "a", **changes: Any) -> ObservedPod:
    pod = ObservedPod(name, name, revision, "serve", "", False, False, "Pending", None, "")
    return replace(pod, **{"is_creating": True} | changes)


def test_only_pods_that_may_hold_up_a_revision_are_explained() -> None:
    pods = (
        engine("a2"), engine("a1"), engine("a0", is_creating=False), engine("a3", is_ending=True),
        engine("b1", "b"), engine("b2", "b", is_creating=False, is_ready=True),
        engine("check", role="preflight"), engine("job", role="evaluation"),
    )  # fmt: skip
    found = pods_to_explain(ObservedState(pods=pods))
    assert [pod.name for pod in found] == ["check", "a1"]


def test_events_are_not_read_of_pods_that_have_just_been_created() -> None:
    pod = observed_pod()
    assert not is_due(pod, CREATED_S + 9)
    assert is_due(pod, CREATED_S + 10)


def event(reason: str, message: str = "", **times: Any) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": CREATED_AT},
        "reason": reason,
        "message": message,
    } | times


FAILED = event("FailedMount", NO_MAP, lastTimestamp="2026-01-01T00:00:05Z")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], None),
        ([event("Scheduled", eventTime="2026-01-01T00:00:01.5Z", lastTimestamp=None)], None),
        ([event("Scheduled", eventTime="2026-01-01T00:00:01.5Z"), FAILED], ("FailedMount", NO_MAP)),
        # The volume could be mounted later, and the image is pulled.
        ([event("Pulling", lastTimestamp="2026-01-01T00:01:00Z"), FAILED], None),
        ([event("FailedAttachVolume", "busy")], ("FailedAttachVolume", "busy")),
        ([event("FailedScheduling", "no node")], None),
    ],
)
def test_the_last_event_says_what_a_pod_waits_for(events: Any, expected: Any) -> None:
    assert mount_failure(events) == expected


def test_a_failure_is_the_trouble_of_its_pod() -> None:
    one, two = engine("one"), engine("two", trouble=("ErrImagePull", "m"))
    state = with_trouble(ObservedState(pods=(one, two)), [(one, ("FailedMount", NO_MAP))])
    assert [pod.trouble for pod in state.pods] == [("FailedMount", NO_MAP), ("ErrImagePull", "m")]


@pytest.mark.parametrize(
    ("volume", "field"),
    [
        ("model", "spec.model.uri"),
        ("draft-model", "spec.engine.speculative.model.uri"),
        ("chat-template", "spec.engine.parsers.chatTemplate"),
        ("certificates", "spec.template"),
    ],
)
def test_the_message_names_the_field_of_the_volume(volume: str, field: str) -> None:
    said = f'MountVolume.SetUp failed for volume "{volume}" : hostPath type check failed: /x'
    expected = f"{said}; create what is missing, or change {field}"
    assert with_advice(("FailedMount", said)) == ("FailedMount", expected)
    assert with_advice(("ErrImagePull", said)) == ("ErrImagePull", said)
