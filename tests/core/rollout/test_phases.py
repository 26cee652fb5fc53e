"""The table of rollout phases: what it allows, what it refuses, and that nothing is stuck."""

from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.rollout.rollout_inputs import NEW, OTHER, deployment, inputs, pod, state

from penstock.core.observed.rollout_phases import (
    EVIDENCE_PHASES,
    JUDGED_PHASES,
    PHASES,
    PHASES_THAT_USERS_END,
    SETTLED_PHASES,
    Phase,
)
from penstock.core.rollout.deadlines import adapter_deadline_s, phase_deadline_s
from penstock.core.rollout.events import detect_events
from penstock.core.rollout.phase_reference import diagram, page
from penstock.core.rollout.phases import (
    EVENTS,
    TRANSITIONS,
    Event,
    UnlistedTransition,
    next_phase,
)
from penstock.core.rollout.step import step
from penstock.core.rollout.waiting import overdue, waiting_for
from penstock.core.rollout.wake import wake_s
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.rollout import RolloutSpec, Strategy

STRATEGIES = get_args(Strategy)


def walk(strategy, *events):
    phase = "Stable"
    for event in events:
        phase = next_phase(strategy, phase, event)
    return phase


@pytest.mark.parametrize(
    ("strategy", "events", "ends"),
    [
        ("Canary", "RevisionChanged PodsReady Accepted PodsReady RoutesMoved PodsGone", "Stable"),
        (
            "Canary",
            "RevisionChanged PodsReady Aborted RoutesMoved PodsGone ResumedByHand",
            "Starting",
        ),
        ("Canary", "RevisionChanged PodsReady Aborted RoutesMoved PodsGone", "Rejected"),
        ("Canary", "RevisionChanged PodsFailed PodsGone RevisionChanged", "Starting"),
        ("Canary", "RevisionChanged PodsReady PausedByHand PromotedByHand", "Growing"),
        ("Canary", "RevisionChanged ReadyToMirror MirrorPassed Accepted", "Growing"),
        ("Canary", "RevisionChanged ReadyToMirror Aborted PodsGone", "Rejected"),
        ("BlueGreen", "RevisionChanged PodsReady RoutesMoved PodsGone", "Stable"),
        ("BlueGreen", "RevisionChanged PodsReady AbortedByHand RoutesMoved PodsGone", "Rejected"),
        ("Rolling", "RevisionChanged RevisionChanged PodsReady", "Stable"),
        ("Recreate", "RevisionChanged PodsGone PodsReady", "Stable"),
    ],
)
def test_a_rollout_takes_its_way(strategy, events, ends):
    assert walk(strategy, *events.split()) == ends


@given(
    st.sampled_from(STRATEGIES), st.sampled_from(get_args(Phase)), st.sampled_from(get_args(Event))
)
def test_what_is_not_listed_raises(strategy, phase, event):
    if (phase, event) in TRANSITIONS[strategy]:
        assert next_phase(strategy, phase, event) in get_args(Phase)
    else:
        with pytest.raises(UnlistedTransition, match=f"{event} has no meaning while {phase}"):
            next_phase(strategy, phase, event)


def reachable(strategy, start):
    seen, ahead = {start}, [start]
    while ahead:
        phase = ahead.pop()
        for (before, _), after in TRANSITIONS[strategy].items():
            if before == phase and after not in seen:
                seen.add(after)
                ahead.append(after)
    return seen


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_phase_is_reached_and_leads_back_to_stable(strategy):
    listed = {phase for phase, _ in TRANSITIONS[strategy]}
    assert reachable(strategy, "Stable") | reachable(strategy, "Rejected") == listed
    for phase in listed:
        assert "Stable" in reachable(strategy, phase)


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_pods_go_only_after_routes_moved_or_before_they_had_any(strategy):
    for (phase, event), after in TRANSITIONS[strategy].items():
        if after in ("Draining", "Discarding"):
            assert event == "RoutesMoved" or phase in ("Starting", "Mirroring", "Waiting")


def test_every_phase_and_event_has_a_meaning():
    assert (set(PHASES), set(EVENTS)) == (set(get_args(Phase)), set(get_args(Event)))


def test_lists_of_phases_follow_from_the_table():
    assert SETTLED_PHASES == ("Stable", "Rejected")
    first = [phase for phase, row in PHASES.items() if row.is_first]
    assert first == ["Stopping", "Starting", "Replacing"]
    starting = [phase for phase, row in PHASES.items() if row.starts_pods]
    assert starting == ["Starting", "Growing", "Replacing"]
    assert JUDGED_PHASES == ("Judging", "Paused", "Growing")
    assert EVIDENCE_PHASES == ("Judging",)
    assert PHASES_THAT_USERS_END == ("Waiting", "Paused")
    assert {phase for phase, row in PHASES.items() if row.user_action} == {"Waiting", "Paused"}


def behavior(of, seen):
    """All that follows from a state and its inputs, but for the phase's name, pods and traffic."""
    service = SimpleNamespace(rollout=RolloutSpec(), termination_grace_s=45.0)
    after = step(of, seen)
    return (
        list(detect_events(of, seen)),
        replace(after, phase="same" if after.phase == of.phase else after.phase),
        wake_s(of, seen),
        phase_deadline_s(of, service, seen.observed),
        adapter_deadline_s(of, CanarySpec()),
        waiting_for(of, seen),
        overdue(of, seen),
    )


@pytest.mark.parametrize(
    ("strategy", "like"),
    sorted({(strategy, phase) for strategy in STRATEGIES for phase, _ in TRANSITIONS[strategy]}),
)
def test_a_new_phase_behaves_as_its_row_says(monkeypatch, strategy, like):
    """Its row suffices for its events, deadlines and messages, and for what follows."""
    row = replace(PHASES[like], meaning="the canary's caches are filled", end="they are full")
    monkeypatch.setitem(PHASES, "Warming", row)
    table = TRANSITIONS[strategy]
    for event, after in [
        (event, after) for (phase, event), after in table.items() if phase == like
    ]:
        monkeypatch.setitem(table, ("Warming", event), after)
    refused = {"refusals": {NEW: ("PodForbidden", "no rights")}}
    for after_s in (0.0, 700.0):
        for children in ((), (deployment(replicas=2), pod(), pod(name="q")), (pod(OTHER, "r"),)):
            seen = inputs(*children, after_s=after_s, **refused)
            expected, found = (
                behavior(state(phase, strategy), seen) for phase in (like, "Warming")
            )
            assert found == expected
    assert "| `Warming` | the canary's caches are filled | they are full |" in page()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_diagram_draws_every_way(strategy):
    drawn = diagram(strategy)
    for (phase, event), after in TRANSITIONS[strategy].items():
        line = next(row for row in drawn.splitlines() if f"{phase} --> {after}:" in row)
        assert event in line
    assert drawn in page()
