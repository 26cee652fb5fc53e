"""A status that the previous version wrote is read, and a half-lost one is restored from its record."""

import json
from typing import Any

import pytest

from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.observed.state_record import ANNOTATION, StateRecord
from penstock.core.observed.stored_status import current_names, mirror_of, stored_status, traffic_of
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import CONTROL, REVISION_LABEL, Object

OLD, NEW, NOW = "a" * 8, "b" * 8, "2026-01-01T00:00:00Z"
OLD_STATUS: Object = {
    "observedGeneration": 2,
    "servedName": "mine",
    "stableRevision": OLD,
    "traffic": [
        {"revision": OLD, "weight": 90},
        {"revision": OLD, "cohort": "control", "weight": 5},
        {"revision": NEW, "cohort": "", "weight": 5},
    ],
    "copies": {"share": 0.25, "sides": [{"revision": NEW}, {"revision": OLD, "cohort": "control"}]},
    "trafficGeneration": 4,
    "rollout": {
        "strategy": "Canary", "phase": "Shadowing", "since": NOW, "reason": "because",
        "revision": NEW, "replicas": 2, "weight": 5, "command": "",
        "rejected": {"revision": "c", "reason": "slow", "at": NOW},
        "evidence": [{"metric": "TTFT", "isWithin": True}],
    },
    "scaling": {"desired": 3, "reason": "load", "at": NOW},
}  # fmt: skip


def test_every_renamed_field_is_read() -> None:
    status = stored_status({"status": OLD_STATUS})
    assert status["modelName"] == "mine"
    assert traffic_of(status) == (
        Share(Side(OLD), 90), Share(Side(OLD, CONTROL), 5), Share(Side(NEW), 5),
    )  # fmt: skip
    assert mirror_of(status) == RolloutMirror((Side(NEW), Side(OLD, CONTROL)), 25)
    state = RolloutState.of(status, 0.0)
    assert state is not None
    assert (state.phase, state.reason, state.weight_percent) == ("Mirroring", "because", 5)
    assert state.rejected == Rejection("c", "slow", NOW)
    assert status["rollout"]["evidence"] == [{"metric": "TTFT", "verdict": "Within"}]
    report = ScalingReport.of(status)
    assert report is not None
    assert (report.desired, report.reason, report.at) == (3, "load", NOW)


def test_a_current_status_stays_as_it_is_and_the_old_one_is_not_changed() -> None:
    before = json.dumps(OLD_STATUS)
    current = current_names(OLD_STATUS)
    assert current_names(current) == current
    assert json.dumps(OLD_STATUS) == before


def test_a_field_with_both_names_keeps_the_current_one() -> None:
    assert current_names({"servedName": "old", "modelName": "new"}) == {"modelName": "new"}


@pytest.mark.parametrize("body", [{}, {"status": None}, {"status": {"observedGeneration": -1}}])
def test_the_status_of_the_schema_is_none(body: Object) -> None:
    assert stored_status(body) == {}


# The old status after an API server with the new schema dropped the old names.
PRUNED: Object = {
    "stableRevision": OLD,
    "traffic": [{"revision": OLD}, {"revision": NEW, "cohort": ""}],
    "trafficGeneration": 4,
    "rollout": {"strategy": "Canary", "phase": "Shadowing", "revision": NEW, "replicas": 2},
    "conditions": [],
}


@pytest.mark.parametrize("text", ["{", "[]", '{"number": {}}', '{"status":' * 100_000])
def test_a_record_that_cannot_be_read_is_empty(text: str) -> None:
    record = StateRecord.of([{"metadata": {"annotations": {ANNOTATION: text}}}])
    assert record == StateRecord()


def test_a_pruned_status_is_restored_from_a_record_with_old_names() -> None:
    text = json.dumps({"number": 3, "status": OLD_STATUS})
    record = StateRecord.of([{"metadata": {"annotations": {ANNOTATION: text}}}])
    restored = record.restored(current_names(PRUNED))
    whole = current_names(OLD_STATUS)
    assert traffic_of(restored) == traffic_of(whole)
    assert RolloutState.of(restored, 0.0) == RolloutState.of(whole, 0.0)
    assert restored["conditions"] == []


def test_a_pruned_status_without_a_record_keeps_its_stable_revision() -> None:
    status = StateRecord().restored(current_names(PRUNED))
    state = RolloutState.of(status, 0.0)
    assert state is not None
    assert (state.stable, state.phase, traffic_of(status)) == (OLD, "Stable", ())


def record(number: int, status: Object, revision: str = NEW) -> Object:
    """A ControllerRevision with a record."""
    text = json.dumps({"number": number, "status": status})
    labels = {REVISION_LABEL: revision}
    return {"metadata": {"labels": labels, "annotations": {ANNOTATION: text}}}


WHOLE = current_names(OLD_STATUS)


def with_rollout(**changed: Any) -> Object:
    rollout = {name: v for name, v in (WHOLE["rollout"] | changed).items() if v is not ...}
    return WHOLE | {"rollout": rollout}


UNREADABLE = [
    with_rollout(strategy=...), with_rollout(phase="Soaking"), with_rollout(replicas="2"),
    with_rollout(phaseTransitionTime="today"), with_rollout(message=...), with_rollout(rejected={}),
    with_rollout(rejected={"revision": "c"}), WHOLE | {"rollout": []}, WHOLE | {"traffic": [NEW]},
    WHOLE | {"traffic": [{"revision": NEW, "cohort": "Third", "percent": 100}]},
    WHOLE | {"traffic": None}, WHOLE | {"mirror": {"percent": 10}}, WHOLE | {"trafficGeneration": None},
]  # fmt: skip
LOSABLE = ["stableRevision", "traffic", "trafficGeneration", "rollout"]


@pytest.mark.parametrize("lost", LOSABLE)
def test_a_status_that_lost_a_field_is_restored(lost: str) -> None:
    partial = {name: value for name, value in WHOLE.items() if name != lost}
    restored = StateRecord.of([record(3, WHOLE)]).restored(partial)
    assert restored == WHOLE


@pytest.mark.parametrize("lost", ["strategy", "phase", "message", "replicas"])
def test_a_rollout_that_lost_a_field_is_restored_or_counts_as_stable(lost: str) -> None:
    partial = with_rollout(**{lost: ...})
    restored = StateRecord.of([record(3, WHOLE)]).restored(partial)
    assert RolloutState.of(restored, 0.0) == RolloutState.of(WHOLE, 0.0)
    state = RolloutState.of(StateRecord().restored(partial), 0.0)
    assert state is not None
    assert (state.stable, state.phase) == (OLD, "Stable")


def test_a_state_that_the_record_does_not_have_is_not_kept() -> None:
    calm = {n: value for n, value in WHOLE.items() if n not in ("mirror", "candidateRevision")}
    restored = StateRecord.of([record(3, calm)]).restored(WHOLE | {"traffic": [{"revision": OLD}]})
    assert "mirror" not in restored


@pytest.mark.parametrize("status", UNREADABLE)
def test_an_unreadable_record_restores_nothing_and_is_written_again(status: Object) -> None:
    """An earlier record is not used either: its pods may be gone."""
    latest = StateRecord.of([record(2, WHOLE, OLD), record(3, status)])
    assert (latest.number, latest.holder) == (3, NEW)
    assert latest.restored({"conditions": []}) == {"conditions": []}
    written = latest.updated(WHOLE, WHOLE)
    assert written is not None
    assert written.number == 4


def test_the_step_of_an_operator_that_ended_before_its_status_is_not_recorded_again() -> None:
    """The operators of `operator_crashes.py` all end at their first write."""
    later = "2026-01-01T00:00:09Z"
    rejected = {"revision": NEW, "message": "slow", "rejectionTime": NOW}
    stepped = with_rollout(phase="Draining", rejected=rejected)
    ahead = StateRecord(3).updated(WHOLE, stepped)
    assert ahead is not None
    again = with_rollout(
        phase="Draining", phaseTransitionTime=later, rejected=rejected | {"rejectionTime": later}
    )
    assert ahead.updated(WHOLE, again) is None
    # The status is later than the record from now on.
    caught_up = ahead.updated(again, again)
    assert caught_up is not None
    assert caught_up.status["rollout"]["phaseTransitionTime"] == later
    assert caught_up.updated(again, again) is None
    further = ahead.updated(WHOLE, with_rollout(phase="Draining", rejected=...))
    assert further is not None
    assert (further.number, "rejected" in further.status["rollout"]) == (5, False)
    # A pause and a resumption change nothing but the time of the phase.
    resumed = ahead.updated(
        stepped, with_rollout(**stepped["rollout"] | {"phaseTransitionTime": later})
    )
    assert resumed is not None
    assert resumed.status["rollout"]["phaseTransitionTime"] == later
    latest = with_rollout(**stepped["rollout"] | {"phaseTransitionTime": "2026-01-01T00:00:19Z"})
    assert resumed.updated(stepped, latest) is None


@pytest.mark.parametrize("text", ["", "null", "[]", '{"number": Infinity, "status": {}}', "{}"])
def test_a_record_without_a_number_does_not_count(text: str) -> None:
    broken = {"metadata": {"annotations": {ANNOTATION: text}}}
    assert StateRecord.of([broken, record(2, WHOLE, OLD)]).number == 2
