"""States of the containers that fetch models, as pods report them."""

import json
from typing import Any

import pytest

from penstock.core.observed.fetches import (
    FetchProgress,
    PodFetches,
    describe_fetches,
    fetches_of,
)
from penstock.core.observed.pods import ObservedPod

AT = "2026-01-01T00:00:10Z"
DONE = {
    "ok": True, "resolved_uri": "hf://o/n@c", "path": "/models", "total_bytes": 30, "downloaded_bytes": 20,
    "num_files": 3, "num_cache_hits": 1, "seconds": 1.5,
}  # fmt: skip
BUSY = {"ok": False, "reason": "ServerError", "message": "hub answers 503", "is_retryable": True}
WRONG = {"ok": False, "reason": "DigestMismatch", "message": "changed", "is_retryable": False}


def ended(code: int, report: Any = None, message: str = "", reason: str = "Error") -> Any:
    text = json.dumps(report) if report else message
    return {"terminated": {"exitCode": code, "reason": reason, "message": text, "finishedAt": AT}}


def container(state: Any, last: Any = None, name: str = "fetch-model", restarts: int = 0) -> Any:
    return {"name": name, "state": state, "lastState": last or {}, "restartCount": restarts}


RUNNING = {"running": {"startedAt": AT}}
LOOPING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}


def test_other_init_containers_are_no_fetches() -> None:
    assert fetches_of([container(RUNNING, name="mine")]) is None


def test_a_fetch_runs_and_ends() -> None:
    assert fetches_of([container({"waiting": {"reason": "PodInitializing"}})]) == PodFetches()
    running = fetches_of([container(RUNNING)])
    assert running == PodFetches(running="fetch-model", since=AT)
    done = fetches_of([container(ended(0, DONE))])
    assert done is not None
    (report,) = done.reports
    assert (report.ok, report.downloaded_bytes) == (True, 20)
    assert (report.seconds, report.num_cache_hits, done.ended_at) == (1.5, 1, AT)
    assert (done.failure, done.running) == (None, None)


def test_the_second_of_two_runs() -> None:
    found = fetches_of([container(ended(0, DONE)), container(RUNNING, name="fetch-draft-model")])
    assert found is not None
    assert (found.running, found.since, found.ended_at) == ("fetch-draft-model", AT, AT)


@pytest.mark.parametrize("state", [LOOPING, ended(75, BUSY)])
def test_a_source_that_does_not_answer_is_no_crash(state: Any) -> None:
    last = ended(75, BUSY) if "waiting" in state else None
    found = fetches_of([container(state, last, restarts=4)])
    assert found is not None
    assert found.failure == ("ServerError", "hub answers 503; the fetch is tried again")
    assert not found.is_final


def test_a_digest_that_differs_is_a_crash_of_the_pod() -> None:
    pod = observed([container(LOOPING, ended(1, WRONG), restarts=2)])
    assert pod.trouble == ("DigestMismatch", "changed")
    assert pod.is_crash_looping
    assert pod.restarts == 2


def test_the_reason_of_a_killed_fetch_is_that_of_kubernetes() -> None:
    found = fetches_of([container(LOOPING, ended(137, reason="OOMKilled"))])
    assert found is not None
    assert found.failure == ("OOMKilled", "fetch-model ended: OOMKilled")


def test_an_image_that_cannot_be_pulled() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    assert observed([container(waiting)]).trouble == ("ErrImagePull", "not found")


def test_a_pod_that_fetches_has_no_trouble_and_waits_for_no_volume() -> None:
    pod = observed([container(RUNNING)])
    assert pod.trouble is None
    assert not pod.is_creating
    assert observed([container({"waiting": {"reason": "PodInitializing"}})]).is_creating


def observed(init: list[Any]) -> ObservedPod:
    engine = {"name": "engine", "state": {"waiting": {"reason": "PodInitializing"}}}
    return ObservedPod.of(
        {
            "metadata": {"name": "p", "uid": "u", "creationTimestamp": AT},
            "spec": {"containers": [{"name": "engine"}]},
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "containerStatuses": [engine],
                "initContainerStatuses": init,
            },
        }
    )


def test_the_pod_with_most_left_stands_for_all() -> None:
    near = PodFetches(running="fetch-model", progress=FetchProgress(9 << 20, 9 << 20, 1 << 20))
    far = PodFetches(running="fetch-model", progress=FetchProgress(0, 9 << 20, 1 << 20))
    assert describe_fetches({"a": PodFetches()}) == ""
    assert describe_fetches({"a": PodFetches(running="fetch-model")}) == "a fetches its model"
    assert describe_fetches({"a": near, "b": far, "c": PodFetches()}) == (
        "b fetches its model: 0.0 of 9.0 MiB, 1.0 MiB/s, 9 s left; 1 more pod fetches it"
    )
    assert describe_fetches({"a": near, "b": far, "c": near}).endswith("; 2 more pods fetch it")
