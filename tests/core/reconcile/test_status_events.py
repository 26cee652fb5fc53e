"""Events that are posted for changes of a status."""

from typing import Any

import pytest

from penstock.core.reconcile.condition_types import Condition
from penstock.core.reconcile.status import as_objects
from penstock.core.reconcile.status_events import new_events

OLD, NEW = "a" * 8, "b" * 8


def status_with(status: str, reason: str, reconciling: str = "False", stalled: str = "") -> Any:
    """A status with the conditions that Events come from. stalled: the reason; empty: not stalled."""
    stop = {"status": "True", "reason": stalled} if stalled else {"status": "False", "reason": "N"}
    return {
        "conditions": [
            {"type": "Reconciling", "status": reconciling, "reason": "R", "message": "r"},
            {"type": "Stalled", "message": "s", **stop},
            {"type": "Ready", "status": status, "reason": reason, "message": "m"},
        ]
    }


def with_engines(reason: str, ready: str = "Ready") -> Any:
    """A status whose condition WorkloadReady is False. ready: reason of Ready."""
    workload = {"type": "WorkloadReady", "status": "False", "reason": reason, "message": "w"}
    conditions = status_with("True" if ready == "Ready" else "False", ready)["conditions"]
    return {"conditions": [*conditions, workload]}


@pytest.mark.parametrize("reason", ["OOMKilled", "EngineLost"])
def test_an_engine_that_ended_has_an_event_once(reason: str) -> None:
    before, after = with_engines("Progressing"), with_engines(reason)
    assert new_events(before, after, None) == [("Warning", reason, "w")]
    assert new_events(after, after, None) == []
    assert new_events(after, before, None) == []
    # Where no other engine answers, the Event of Ready tells of it.
    assert new_events(before, with_engines(reason, ready=reason), None) == [
        ("Warning", reason, "m")
    ]


def test_a_fetch_has_events_at_its_begin_and_end() -> None:
    waiting, fetching = with_engines("Progressing"), with_engines("Fetching")
    assert new_events(waiting, fetching, None) == [("Normal", "Fetching", "w")]
    assert new_events(fetching, fetching, None) == []
    end = [("Normal", "Fetched", "the pods have fetched the model")]
    assert new_events(fetching, waiting, None) == end
    # A fetch that failed has no end.
    assert new_events(fetching, with_engines("NoSpace"), None) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, status_with("True", "Ready"), [("Normal", "Ready", "m")]),
        (status_with("True", "Ready"), status_with("True", "Ready"), []),
        (
            status_with("False", "NoEngines"),
            status_with("True", "Ready"),
            [("Normal", "Ready", "m")],
        ),
        # An outage: nothing is being rolled out, or another cause than the start of pods.
        (
            status_with("True", "Ready"),
            status_with("False", "NoEngines"),
            [("Warning", "NoEngines", "m")],
        ),
        (
            status_with("False", "NoEngines", "True"),
            status_with("False", "ErrImagePull", "True"),
            [("Warning", "ErrImagePull", "m")],
        ),
        # A service that starts, and a rollout that makes its way.
        ({}, status_with("False", "NoEngines", "True"), [("Normal", "NoEngines", "m")]),
        (status_with("True", "Ready"), status_with("True", "Ready", "True"), []),
        # The Event of the rollout tells of a rejection.
        (
            status_with("True", "Ready", "True"),
            status_with("True", "Ready", stalled="Rejected"),
            [],
        ),
        (
            status_with("False", "NoEngines", "True"),
            status_with("False", "NoEngines", stalled="ProgressDeadlineExceeded"),
            [("Warning", "ProgressDeadlineExceeded", "s")],
        ),
        (
            status_with("True", "Ready"),
            status_with("Unknown", "InvalidSpec", stalled="InvalidSpec"),
            [("Warning", "InvalidSpec", "s")],
        ),
        (status_with("False", "A", stalled="A"), status_with("False", "A", stalled="A"), []),
        (
            status_with("False", "A", stalled="A"),
            status_with("False", "B", stalled="B"),
            [("Warning", "B", "s")],
        ),
    ],
)
def test_readiness(before: Any, after: Any, expected: Any) -> None:
    assert new_events(before, after, NEW) == expected


def rollout(phase: str, message: str = "because", rejected: str | None = None) -> Any:
    said = rejected and {"revision": rejected, "message": "too slow"}
    return {"rollout": {"phase": phase, "message": message, "rejected": said}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, rollout("Starting"), []),
        ({}, rollout("Stable"), []),
        (rollout("Stable"), rollout("Stable", "other"), []),
        (rollout("Stable"), rollout("Starting"), [("Normal", "RolloutStarting", "because")]),
        (
            rollout("Judging"),
            rollout("RollingBack", rejected=NEW),
            [("Warning", "RolloutRollingBack", f"revision {NEW}: too slow")],
        ),
        (
            rollout("Discarding"),
            rollout("Rejected", rejected=NEW),
            [("Warning", "RolloutRejected", f"revision {NEW}: too slow")],
        ),
        # The spec asks for another one meanwhile.
        (
            rollout("Discarding"),
            rollout("Rejected", rejected=OLD),
            [("Normal", "RolloutRejected", f"revision {OLD}: too slow")],
        ),
        (
            rollout("RollingBack", rejected=NEW),
            rollout("Discarding", rejected=NEW),
            [("Normal", "RolloutDiscarding", f"revision {NEW}: too slow")],
        ),
        # One that nobody rejected.
        (
            rollout("Judging"),
            rollout("RollingBack"),
            [("Normal", "RolloutRollingBack", "because")],
        ),
        # A first look at a service whose rollout is under way.
        ({}, rollout("Replacing"), [("Normal", "RolloutReplacing", "because")]),
        # An invalid spec gives no rollout event.
        (rollout("Stable"), {}, []),
    ],
)
def test_rollouts(before: Any, after: Any, expected: Any) -> None:
    assert new_events(before, after, NEW) == expected


@pytest.mark.parametrize(
    ("had", "desired", "expected"),
    [
        (1, 3, [("Normal", "ScaledUp", "1 -> 3 replicas: load")]),
        (3, 1, [("Normal", "ScaledDown", "3 -> 1 replicas: load")]),
        (3, 3, []),
        (None, 3, []),
    ],
)
def test_replicas(had: int | None, desired: int, expected: Any) -> None:
    before = {"scaling": {"desiredReplicas": had}} if had else {}
    assert (
        new_events(before, {"scaling": {"desiredReplicas": desired, "message": "load"}}, NEW)
        == expected
    )


def test_no_decision_is_no_event() -> None:
    assert new_events({"scaling": {"desiredReplicas": 3}}, {"scaling": None}, None) == []


def test_a_condition_keeps_the_moment_of_its_last_change_and_a_bounded_message() -> None:
    tree = tuple(
        Condition(name, "True", "R", "m" * 3000) for name in ("Ready", "Stalled", "SpecValid")
    )
    previous = {
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "then"},
            {"type": "Stalled", "status": "False", "lastTransitionTime": "then"},
        ]
    }
    written = {each["type"]: each for each in as_objects(tree, previous, 7, "now")}
    moments = {name: each["lastTransitionTime"] for name, each in written.items()}
    assert moments == {"Ready": "then", "Stalled": "now", "SpecValid": "now"}
    assert {len(each["message"]) for each in written.values()} == {1000}
    assert {each["observedGeneration"] for each in written.values()} == {7}


def test_conditions_of_other_writers_survive() -> None:
    foreign = {"type": "backup.io/Done", "status": "True", "reason": "Done", "message": ""}
    gone = {"type": "ScalingActive", "status": "True", "lastTransitionTime": "then"}
    written = as_objects(
        (Condition("Ready", "True", "R", "m"),), {"conditions": [foreign, gone]}, 7, "now"
    )
    assert [each["type"] for each in written] == ["Ready", "backup.io/Done"]
    assert written[1] == foreign


@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("ErrImagePull", "ErrImagePull"),
        ("two words", "Unknown"),
        ("Word\n", "Unknown"),
        ("", "Unknown"),
        ("x" * 1025, "Unknown"),
    ],
)
def test_a_reason_that_the_api_server_would_refuse_is_not_written(
    reason: str, written: str
) -> None:
    assert Condition("Ready", "False", reason, "m").as_object()["reason"] == written
