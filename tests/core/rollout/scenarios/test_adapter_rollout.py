"""Rollouts of versions of an adapter: phases, traffic, placed versions, history."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.rollout.scenarios.adapter_world import REVISIONS, URIS, AdapterWorld, serving

from penstock.api.loraadapter.status import LoraAdapterStatus
from penstock.core.adapters import versions
from penstock.core.adapters.adapter import Placement
from penstock.core.adapters.resource import AdapterResource
from penstock.core.canary.verdict import Abort, Accept, Continue
from penstock.core.reconcile.adapter_conditions import adapter_conditions
from penstock.core.reconcile.adapter_state import AdapterState
from penstock.core.rollout.adapter_events import MAX_SHORT_S

ACCEPT, ABORT = Accept("it is as good"), Abort("TTFT of the canary is +30 %")


def phases(world: AdapterWorld, rounds: int = 30) -> list[str]:
    """The phases that a world goes through, each once."""
    seen: list[str] = []
    for _ in range(rounds):
        world.round()
        if seen[-1:] != [world.phase]:
            seen.append(world.phase)
    return seen


def test_the_first_version_gets_all_requests_at_once() -> None:
    world = AdapterWorld()
    rollout = world.step()
    assert rollout.placed == (world.version,)
    assert world.shares() == {0: 100}
    assert world.status["stableRevision"] == REVISIONS[0]
    assert world.status["rollout"]["phase"] == "Stable"
    assert world.status["trafficGeneration"] == 1
    LoraAdapterStatus.model_validate(world.status)


def test_a_settled_adapter_changes_nothing() -> None:
    world = serving()
    before = world.status
    world.now_s += 1000
    world.step()
    assert world.status == before


def test_a_judgement_says_what_it_waits_for() -> None:
    world = serving()
    world.wanted = 1
    assert phases(world, 6) == ["Starting", "Judging"]
    assert world.step().waiting_for == "there is no evidence yet"
    world.verdict = Continue("the tests need more requests", 0.3)
    assert world.step().waiting_for == "the tests need more requests"


def test_a_canary_as_good_is_promoted() -> None:
    world = serving()
    world.wanted = 1
    assert phases(world, 6) == ["Starting", "Judging"]
    assert world.shares() == {0: 95, 1: 5}
    world.verdict = Continue("on", 0.3)
    world.round()
    assert world.shares() == {0: 70, 1: 30}
    LoraAdapterStatus.model_validate(world.status)
    world.verdict = ACCEPT
    assert phases(world) == ["Growing", "Promoting", "Draining", "Stable"]
    assert world.shares() == {1: 100}
    assert world.copies == {REVISIONS[1]: 2}
    history = versions.history_of(world.status)
    assert [(each.revision, bool(each.stable_time)) for each in history] == [
        (REVISIONS[1], True),
        (REVISIONS[0], True),
    ]
    assert versions.undo_target(history, REVISIONS[1], REVISIONS[1]) == history[1]


def test_a_canary_found_worse_is_rejected_until_the_spec_changes() -> None:
    world = serving()
    world.wanted = 1
    world.run(4)
    world.verdict = ABORT
    assert phases(world) == ["RollingBack", "Discarding", "Rejected"]
    assert world.shares() == {0: 100}
    assert world.copies == {REVISIONS[0]: 2}
    assert world.status["rollout"]["rejected"]["message"] == ABORT.reason
    world.wanted, world.verdict = 0, None
    assert phases(world) == ["Stable"]
    assert "rejected" not in world.status["rollout"]


def test_a_version_that_engines_refuse_is_rejected_with_their_reason() -> None:
    world = serving(bad={1})
    world.wanted = 1
    assert phases(world) == ["Starting", "Discarding", "Rejected"]
    rejected = world.status["rollout"]["rejected"]
    assert rejected["message"] == f"revision {REVISIONS[1]} cannot be loaded: pickle file"
    assert world.shares() == {0: 100}
    world.bad = set()
    world.round()
    assert world.phase == "Rejected"
    world.order("resume")
    assert phases(world, 4) == ["Starting", "Judging"]


def test_a_version_without_requests_for_the_stable_one_replaces_it_after_one_load() -> None:
    world = serving(is_used=False)
    world.wanted = 1
    assert phases(world) == ["Starting", "Promoting", "Draining", "Stable"]
    assert world.status["stableRevision"] == REVISIONS[1]


def test_the_first_version_cannot_block_its_successor() -> None:
    world = AdapterWorld(bad={0}, is_used=False)
    world.run(3)
    world.wanted = 1
    assert phases(world)[-1] == "Stable"
    assert world.shares() == {1: 100}


@pytest.mark.parametrize(
    ("placement", "starting", "growing"),
    [
        (Placement(), ("OnDemand", 1), ("OnDemand", 2)),
        (Placement(max_copies=1), ("OnDemand", 1), ("OnDemand", 1)),
        (Placement("Fixed", 3, 3, is_pinned=True), ("OnDemand", 1), ("Fixed", 3)),
        (Placement("All"), ("OnDemand", 1), ("All", 0)),
    ],
)
def test_copies_of_the_new_version(
    placement: Placement, starting: tuple[str, int], growing: tuple[str, int]
) -> None:
    world = serving(placement=placement)
    world.wanted = 1
    bounds = {}
    for _ in range(4):
        rollout = world.step()
        assert rollout.placed[0].placement == placement
        new = [each for each in rollout.placed if each.revision == REVISIONS[1]]
        bounds[world.phase] = [(e.placement.policy, e.placement.min_copies) for e in new]
        if world.phase != "Growing":
            world.copies[REVISIONS[1]] = 1
        world.verdict = ACCEPT if world.phase == "Judging" else None
    assert bounds == {"Starting": [starting], "Judging": [starting], "Growing": [growing]}


def test_too_few_slots_delay_a_promotion_and_do_not_prevent_it() -> None:
    world = serving(max_copies=1)
    world.copies[REVISIONS[0]] = 4
    world.wanted, world.verdict = 1, ACCEPT
    world.max_copies = 1
    for _ in range(3):
        rollout = world.step()
        world.copies[REVISIONS[1]] = 1
    assert world.phase == "Growing"
    assert rollout.waiting_for == f"1 of 4 copies of revision {REVISIONS[1]} are loaded"
    world.now_s += MAX_SHORT_S
    world.step()
    assert world.phase == "Promoting"
    assert world.status["rollout"]["message"] == f"1 copy of revision {REVISIONS[1]} loaded"


def test_a_version_that_gets_no_slot_is_late_and_its_condition_says_why() -> None:
    """The rollout continues by itself once there is a slot."""
    world = serving()
    world.wanted, world.max_copies = 1, 0

    def rolled_out(*, has_slot: bool) -> list[tuple[str, str]]:
        rollout = world.step()
        assert world.phase == "Starting"
        state = AdapterState(num_engines=1, wanted=1, has_candidate_slot=has_slot)
        resource = AdapterResource("n", "sql", "1", 1, "", "chat", "sql", world.version)
        found = {
            each.type: (each.status, each.reason)
            for each in adapter_conditions(resource, state, rollout, was_resolved=True)
        }
        return [found[kind] for kind in ("RolledOut", "Stalled")]

    world.step()
    waiting = [("False", "Starting"), ("False", "NotStalled")]
    assert rolled_out(has_slot=False) == waiting
    world.now_s += MAX_SHORT_S
    assert rolled_out(has_slot=True) == waiting
    assert rolled_out(has_slot=False) == [("False", "NoAdapterSlot"), ("True", "NoAdapterSlot")]
    world.copies[REVISIONS[1]] = 1
    world.step()
    assert world.phase == "Judging"


def test_copies_stay_until_gateways_apply_the_traffic() -> None:
    world = serving()
    world.wanted, world.verdict = 1, ACCEPT
    while world.phase != "Promoting":
        world.round()
    for _ in range(3):
        world.applied = {"g": world.status["trafficGeneration"] - 1}
        assert {each.revision for each in world.step().placed} == {REVISIONS[0], REVISIONS[1]}
        world.now_s += 2
    world.obey()
    rollout = world.step()
    assert world.phase == "Draining"
    assert [each.revision for each in rollout.placed] == [REVISIONS[1]]


def test_a_third_version_waits_for_the_rollback_of_the_second() -> None:
    world = serving()
    world.wanted = 1
    world.run(4)
    world.wanted = 2
    seen = phases(world)
    assert seen == ["RollingBack", "Discarding", "Rejected", "Starting", "Judging"]
    assert world.shares() == {0: 95, 2: 5}


def test_commands() -> None:
    world = serving()
    world.wanted = 1
    world.run(4)
    world.order("pause")
    world.verdict = Continue("on", 0.4)
    world.run(3)
    assert (world.phase, world.shares()) == ("Paused", {0: 95, 1: 5})
    world.order("resume")
    world.run(2)
    assert (world.phase, world.shares()) == ("Judging", {0: 60, 1: 40})
    world.order("promote")
    world.run(10)
    assert (world.phase, world.shares()) == ("Stable", {1: 100})


def test_a_retried_version_begins_anew() -> None:
    """The start time tells the judge that the trial is another one."""
    world = serving()
    world.wanted = 1
    world.run(4)
    first = versions.history_of(world.status)[0]
    world.order("abort")
    world.run(10)
    assert world.phase == "Rejected"
    world.order("resume")
    world.run(2)
    again = versions.history_of(world.status)[0]
    assert (again.revision, again.start_time > first.start_time) == (first.revision, True)


def test_a_status_that_lost_its_versions_starts_again_with_the_spec() -> None:
    world = serving()
    world.wanted = 1
    world.run(4)
    del world.status["versions"]
    world.step()
    assert (world.phase, world.shares()) == ("Stable", {1: 100})


ACTIONS = st.one_of(
    st.tuples(st.just("rounds"), st.integers(1, 6)),
    st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 70])),
    st.tuples(st.just("spec"), st.integers(0, 3)),
    st.tuples(st.just("bad"), st.sets(st.integers(0, 3), max_size=2)),
    st.tuples(st.just("used"), st.booleans()),
    st.tuples(st.just("verdict"), st.sampled_from([None, ACCEPT, ABORT, Continue("", 0.3)])),
    st.tuples(st.just("command"), st.sampled_from(["promote", "abort", "pause", "resume"])),
    st.tuples(st.just("copies"), st.integers(0, 8)),
    st.tuples(st.just("applied"), st.sampled_from([{"g": 0}, {"g": None}, {"g": 99, "h": 0}, {}])),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(ACTIONS, max_size=50))
def test_whatever_happens_requests_have_a_version_and_the_rollout_ends(actions: list[Any]) -> None:
    world = AdapterWorld()
    world.step()
    for what, value in actions:
        act(world, what, value)
        check(world)
    world.bad, world.verdict, world.command = set(), ACCEPT, None
    world.max_copies = 8
    if world.phase == "Paused":
        world.order("resume")
    world.run()
    assert world.phase in ("Stable", "Rejected")
    stable = world.status["stableRevision"]
    assert set(world.copies) == {stable}
    assert {REVISIONS[n]: share for n, share in world.shares().items()} == {stable: 100}
    rejected = world.status["rollout"].get("rejected") or {}
    assert world.version.revision == (stable if world.phase == "Stable" else rejected["revision"])


def act(world: AdapterWorld, what: str, value: Any) -> None:
    match what:
        case "rounds":
            world.run(value)
        case "step":
            world.step()
        case "settle":
            world.settle(world.step())
        case "time":
            world.now_s += value
        case "spec":
            world.wanted = value
        case "bad":
            world.bad = value
        case "used":
            world.is_used = value
        case "verdict":
            world.verdict = value
        case "command":
            world.order(value)
        case "copies":
            world.max_copies = value
        case "applied":
            world.applied = dict(value)


def check(world: AdapterWorld) -> None:
    """All requests have a version whose files are known, and one that may stay loaded."""
    shares = world.shares()
    assert sum(shares.values()) == 100
    assert 0 not in shares.values()
    known = {each.revision: each.uri for each in versions.history_of(world.status)}
    for each in world.status["traffic"]:
        assert known[each["revision"]] == each["uri"]
        assert each["uri"] in URIS
    placed = {each.revision for each in replace(world).step().placed}
    if world.phase not in ("Promoting", "RollingBack"):  # the next step may end them
        assert {each["revision"] for each in world.status["traffic"]} <= placed | {""}
    LoraAdapterStatus.model_validate(world.status)
