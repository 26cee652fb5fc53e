"""Children of a service as the API server has them, reduced to what is decided on."""

from typing import Any

import pytest

from penstock.core.observed.children import ObservedDeployment, ObservedJob, ObservedState, own_pods
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import preflight_result

METADATA: dict[str, Any] = {
    "name": "x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {},
}  # fmt: skip


def preflight(**status: Any) -> ObservedPod:
    return ObservedPod.of({"metadata": METADATA, "status": {"phase": "Failed", **status}})


def ended(code: int, message: str = "", reason: str = "Error") -> list[dict[str, Any]]:
    terminated = {"exitCode": code, "reason": reason, "message": message}
    return [{"name": "engine", "state": {"terminated": terminated}}]


GONE = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "m"}


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted", "message": "the node was low on memory"},
        {"reason": "UnexpectedAdmissionError", "message": "no such device"},
        {"reason": "OutOfcpu"},
        {"reason": "NodeAffinity"},
        {"reason": "Terminated", "message": "node shutdown", "containerStatuses": ended(137)},
        {"conditions": [GONE], "containerStatuses": ended(137)},
        {"containerStatuses": ended(137, reason="ContainerStatusUnknown")},
        {"containerStatuses": ended(255, reason="Unknown")},
        {},
    ],
)
def test_a_preflight_that_its_node_gave_up_says_nothing_of_the_model(status: Any) -> None:
    pod = preflight(**status)
    assert preflight_result(pod) is None
    assert pod.lost
    assert status.get("message", "") in pod.lost


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"containerStatuses": ended(1)}, "PreflightFailed"),
        ({"reason": "DeadlineExceeded", "message": "too long"}, "PreflightFailed"),
        ({"containerStatuses": ended(137), "conditions": [{**GONE, "status": "False"}]},
         "PreflightFailed"),
        ({"containerStatuses": ended(1, '{"ok": false, "reason": "R", "message": "m"}'),
          "reason": "Evicted"}, "R"),
    ],
)  # fmt: skip
def test_one_that_ended_by_itself_does(status: Any, reason: str) -> None:
    verdict = preflight_result(preflight(**status))
    assert verdict is not None
    assert (verdict.ok, verdict.reason) == (False, reason)


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "Running"),
        ([{"type": "Failed", "status": "False"}], "Running"),
        ([{"type": "Failed", "status": "True", "message": "m"}], "Failed"),
        ([{"type": "Complete", "status": "False"}], "Running"),
        ([{"type": "Complete", "status": "True"}], "Passed"),
    ],
)
def test_a_job_has_ended_when_a_condition_of_it_is_true(conditions: Any, state: str) -> None:
    job = ObservedJob.of({"metadata": METADATA, "status": {"conditions": conditions}})
    assert job.state == state


@pytest.mark.parametrize(
    ("status", "trouble"), [("True", ("FailedCreate", "a quota")), ("False", None)]
)
def test_a_deployment_whose_pods_can_be_made_again_is_in_no_trouble(
    status: str, trouble: Any
) -> None:
    failure = {"type": "ReplicaFailure", "status": status}
    failure |= {"reason": "FailedCreate", "message": "a quota"}
    body = {"metadata": METADATA, "spec": {}, "status": {"conditions": [failure]}}
    assert ObservedDeployment.of(body).trouble == trouble


ENGINE_LABELS = {
    "serving.penstock.dev/revision": "r1",
    "serving.penstock.dev/role": "serve",
}


def engine_pod(metadata: Any = None, **status: Any) -> ObservedPod:
    labeled = METADATA | {"labels": ENGINE_LABELS} | (metadata or {})
    return ObservedPod.of({"metadata": labeled, "status": {"phase": "Pending", **status}})


def waiting(reason: str, **engine: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "why"}}
    return {"containerStatuses": [{"name": "engine", "state": state, **engine}]}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "m",
}
KILLED = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
CRASHED = {"lastState": {"terminated": {"exitCode": 1, "message": "no such file"}}}


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"conditions": [UNSCHEDULABLE]}, ("SchedulingGated", "m")),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False"}]},
            ("Unschedulable", ""),
        ),
        ({"conditions": [UNSCHEDULABLE | {"status": "True"}]}, None),
        ({}, None),
        (waiting("ContainerCreating"), None),
        (waiting("PodInitializing"), None),
        (waiting("ErrImagePull"), ("ErrImagePull", "why")),
        (waiting("CrashLoopBackOff"), ("CrashLoopBackOff", "why")),
        (waiting("CrashLoopBackOff", **CRASHED), ("CrashLoopBackOff", "no such file")),
        (waiting("ErrImagePull", **CRASHED), ("ErrImagePull", "why")),
        # The kubelet alternates between both reasons.
        (waiting("ImagePullBackOff"), ("ErrImagePull", "why")),
        (waiting("ImagePullBackOff", **KILLED), ("ErrImagePull", "why")),
    ],
)
def test_what_keeps_a_pod_from_running(status: Any, trouble: Any) -> None:
    pod = engine_pod(**status)
    assert pod.trouble == trouble
    assert pod.is_unschedulable == (trouble is not None and trouble[0] == "Unschedulable")
    assert pod.is_crash_looping == (trouble is not None and trouble[0] == "CrashLoopBackOff")


def ready_condition(ready: str, at: str) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": ready, "lastTransitionTime": f"2026-01-01T00:00:{at}Z"}]


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:10Z"}}


@pytest.mark.parametrize(
    ("state", "conditions", "is_known"),
    [
        ({"waiting": {"reason": "CrashLoopBackOff"}}, [], True),
        (
            KILLED["lastState"],
            ready_condition("True", "10"),
            False,
        ),  # the kubelet has not updated Ready yet
        (KILLED["lastState"], ready_condition("False", "10"), True),
        (RUNNING, ready_condition("False", "10"), True),
        (RUNNING, ready_condition("False", "11"), False),  # it was ready since it started
        (RUNNING, ready_condition("True", "10"), False),
    ],
)
def test_a_container_that_was_killed_for_lack_of_memory(
    state: Any, conditions: Any, is_known: bool
) -> None:
    container = {"name": "engine", "state": state, **KILLED}
    limits = {"limits": {"memory": "1Gi"}}
    body = {
        "metadata": METADATA,
        "spec": {"containers": [{"name": "proxy"}, {"name": "engine", "resources": limits}]},
        "status": {"containerStatuses": [container], "conditions": conditions},
    }
    pod = ObservedPod.of(body)
    text = (
        "the engine's container was killed for lack of memory, at its limit of 1Gi: raise "
        "spec.resources.limits.memory"
    )
    assert pod.trouble == (("OOMKilled", text) if is_known else None)
    assert pod.is_crash_looping == is_known


def test_a_pod_without_a_status_has_not_restarted() -> None:
    assert engine_pod().restarts == 0
    assert engine_pod(**waiting("ContainerCreating", restartCount=3)).restarts == 3


@pytest.mark.parametrize(("status", "ready"), [({}, 0), ({"readyReplicas": 2}, 2)])
def test_a_deployment_without_a_status_has_no_ready_pod(status: Any, ready: int) -> None:
    body = {"metadata": METADATA, "spec": {"replicas": 3}, "status": status}
    deployment = ObservedDeployment.of(body)
    assert (deployment.replicas, deployment.ready) == (3, ready)


def test_pods_that_end_or_have_another_role_do_not_serve() -> None:
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    other = {"labels": ENGINE_LABELS | {"serving.penstock.dev/role": "preflight"}}
    canary = {"labels": ENGINE_LABELS | {"serving.penstock.dev/revision": "r2"}}
    control = {"labels": ENGINE_LABELS | {"serving.penstock.dev/cohort": "control"}}
    pods = tuple(
        engine_pod({"name": name, **metadata})
        for name, metadata in [
            ("a", {}), ("b", ending), ("c", other), ("d", canary), ("e", control),
        ]
    )  # fmt: skip
    observed = ObservedState(pods=pods, deployments=())
    assert [pod.name for pod in observed.serving("r1")] == ["a", "e"]
    assert [pod.name for pod in observed.serving("r1", "")] == ["a"]
    assert [pod.name for pod in observed.serving("r1", "control")] == ["e"]


def test_pods_of_a_deleted_service_of_the_name_are_told_by_their_age_and_owner() -> None:
    def pod(name: str, role: str, at: str, owner: str = "rs", revision: str = "a") -> ObservedPod:
        return ObservedPod(
            name,
            name,
            revision,
            role,
            "",
            True,
            False,
            "Running",
            None,
            "",
            created_at=at,
            owner=owner,
        )

    made = ObservedDeployment("d", "d", "a", 1, 0, False, {}, created_at="2026-01-01T00:05:00Z")
    pods = [
        pod("of-an-orphaned-deployment", "serve", "2026-01-01T00:04:00Z"),
        pod("older-than-both", "serve", "2026-01-01T00:00:00Z"),
        pod("of-its-deployment", "serve", "2026-01-01T00:05:00Z"),
        pod("as-old-as-the-service", "serve", "2026-01-01T00:01:00Z", revision="b"),
        pod("of-a-deployment-that-is-gone", "serve", "2026-01-01T00:02:00Z", revision="b"),
        pod("anothers-preflight", "preflight", "2026-01-01T00:06:00Z", owner="u0"),
        pod("its-preflight", "preflight", "2026-01-01T00:01:00Z", owner="u1"),
        pod("an-orphan", "preflight", "2026-01-01T00:00:00Z", owner=""),
    ]
    own = own_pods(pods, [made], "u1", "2026-01-01T00:01:00Z")
    assert [each.name for each in own] == [
        "of-an-orphaned-deployment",
        "of-its-deployment",
        "of-a-deployment-that-is-gone",
        "its-preflight",
        "an-orphan",
    ]
