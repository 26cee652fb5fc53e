"""Events that are posted for changes of a status."""

from typing import Any

import pytest

from penstock.core.reconcile.conditions import Condition
from penstock.core.reconcile.status import as_objects, new_events

OLD, NEW = "a" * 8, "b" * 8


def status_with(
    status: str, reason: str, rolled_out: str = "Stable", stalled: str = "False"
) -> Any:
    return {
        "conditions": [
            {"type": "Ready", "status": status, "reason": reason, "message": "m"},
            {"type": "RolledOut", "status": "Unknown", "reason": rolled_out},
            {"type": "Stalled", "status": stalled},
        ]
    }


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
        (
            status_with("True", "Ready"),
            status_with("False", "NoEngines"),
            [("Warning", "NoEngines", "m")],
        ),
        (status_with("False", "A"), status_with("False", "B"), [("Warning", "B", "m")]),
        # A rollout that makes its way.
        (
            status_with("True", "Ready"),
            status_with("False", "Judging", "Judging"),
            [("Normal", "Judging", "m")],
        ),
        (
            status_with("True", "Ready"),
            status_with("False", "Rejected", "Rejected", "True"),
            [("Warning", "Rejected", "m")],
        ),
    ],
)
def test_readiness(before: Any, after: Any, expected: Any) -> None:
    assert new_events(before, after, NEW) == expected


def rollout(phase: str, reason: str = "because", rejected: str | None = None) -> Any:
    said = rejected and {"revision": rejected, "reason": "too slow"}
    return {"rollout": {"phase": phase, "reason": reason, "rejected": said}}


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
    before = {"scaling": {"desired": had}} if had else {}
    assert new_events(before, {"scaling": {"desired": desired, "reason": "load"}}, NEW) == expected


def test_no_decision_is_no_event() -> None:
    assert new_events({"scaling": {"desired": 3}}, {"scaling": None}, None) == []


def test_a_condition_keeps_the_moment_of_its_last_change_and_a_bounded_message() -> None:
    tree = tuple(Condition(name, "True", "R", "m" * 3000) for name in ("Old", "Changed", "New"))
    previous = {
        "conditions": [
            {"type": "Old", "status": "True", "lastTransitionTime": "then"},
            {"type": "Changed", "status": "False", "lastTransitionTime": "then"},
        ]
    }
    written = {each["type"]: each for each in as_objects(tree, previous, 7, "now")}
    moments = {name: each["lastTransitionTime"] for name, each in written.items()}
    assert moments == {"Old": "then", "Changed": "now", "New": "now"}
    assert {len(each["message"]) for each in written.values()} == {1000}
    assert {each["observedGeneration"] for each in written.values()} == {7}
