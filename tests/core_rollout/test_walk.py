"""Rollouts from beginning to end in a small cluster: each strategy, and anything that may happen."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.canary.spec import CanarySpec
from penstock.core.canary.verdict import Abort, Accept, Continue
from penstock.core.revision import revision_of
from penstock.core.rollout import commands
from penstock.core.rollout.routes import LIMIT_S, LOOK_S
from penstock.core.rollout.spec import RolloutSpec

ACCEPT, ABORT = Accept("it is as good"), Abort("TTFT of the canary is +30 %")


@pytest.fixture
def begun(make_world):
    """A service that serves its first revision: made with a strategy, and a number of replicas."""

    def make(strategy="Canary", replicas=4, **rollout):
        spec = RolloutSpec(strategy=strategy, **rollout)
        world = make_world(desired=replicas)
        world.spec = replace(world.spec, rollout=spec)
        assert world.run() == ["Starting", "Stable"]
        assert serving(world) == {revision_of(world.spec): replicas}
        return world

    return make


def serving(world):
    counts = {}
    for pod in world.serving():
        counts[pod.revision] = counts.get(pod.revision, 0) + pod.is_ready
    return counts


def change(world, seed=1):
    """Another revision is wanted; its name, and that of the old."""
    old = revision_of(world.spec)
    world.spec = replace(world.spec, seed=seed)
    return revision_of(world.spec), old


def order(world, action):
    world.numbers += 1
    state = world.rollout
    rejected = state.rejected.revision if state.rejected else ""
    revision = state.revision or rejected or "0" * 8
    world.command = commands.read(commands.write(action, revision, f"n{world.numbers}"))


def until(world, phase, rounds=100):
    for _ in range(rounds):
        if world.rollout.phase == phase:
            return
        world.settle_pods()
        world.follow()
        world.reconcile()
        world.now_s += 2
    raise AssertionError(f"never {phase}: {world.phases}")


def weights(world):
    return {(s.side.revision, s.side.cohort): s.weight for s in world.traffic}


FORWARD = {
    "Canary": ["Starting", "Judging", "Growing", "Promoting", "Draining", "Stable"],
    "BlueGreen": ["Starting", "Promoting", "Draining", "Stable"],
    "Rolling": ["Replacing", "Stable"],
    "Recreate": ["Stopping", "Starting", "Stable"],
}


@pytest.mark.parametrize("strategy", FORWARD)
def test_a_good_revision_takes_over(begun, strategy):
    world = begun(strategy)
    world.verdict = ACCEPT
    new, _ = change(world)
    assert world.run() == FORWARD[strategy]
    assert serving(world) == {new: 4}
    assert weights(world) == {(new, ""): 100}


@pytest.mark.parametrize(
    ("strategy", "way"),
    [
        ("Canary", ["Starting", "Discarding", "Rejected"]),
        ("BlueGreen", ["Starting", "Discarding", "Rejected"]),
        ("Rolling", ["Replacing", "RollingBack", "Rejected"]),
    ],
)
@pytest.mark.parametrize("kind", ["bad", "refused"])
def test_one_that_cannot_start_is_rejected_and_not_tried_again(begun, strategy, way, kind):
    world = begun(strategy)
    new, old = change(world)
    getattr(world, kind).add(new)
    assert world.run() == way
    assert serving(world) == {old: 4}
    assert weights(world) == {(old, ""): 100}
    assert world.rollout.rejected.revision == new
    assert ("ModelNotFound" if kind == "refused" else "crashed") in world.rollout.rejected.reason
    assert world.run() == []
    world.spec = replace(world.spec, scaling=replace(world.spec.scaling, max_replicas=30))
    assert world.run() == []
    back, _ = change(world, seed=0)
    assert (back, world.run()) == (old, ["Stable"])


def test_a_canary_that_the_judge_aborts_goes_and_its_reason_stays(begun):
    world = begun("Canary", replicas=10)
    new, old = change(world)
    until(world, "Judging")
    world.settle_pods()
    world.reconcile()
    assert weights(world) == {(old, ""): 90, (old, "control"): 5, (new, ""): 5}
    assert serving(world) == {old: 11, new: 1}
    world.verdict = ABORT
    assert world.run() == ["RollingBack", "Discarding", "Rejected"]
    assert serving(world) == {old: 10}
    assert world.rollout.rejected.reason == ABORT.reason


def test_weight_grows_with_what_was_earned_and_only_onto_pods_that_are_ready(begun):
    world = begun("Canary", replicas=10)
    new, old = change(world)
    until(world, "Judging")
    world.verdict = Continue("so far so good", 0.30)
    world.reconcile()
    assert (world.rollout.weight, weights(world)[new, ""]) == (30, 10)  # one pod of each side
    for _ in range(3):
        world.settle_pods()
        world.reconcile()
    assert weights(world) == {(old, ""): 40, (old, "control"): 30, (new, ""): 30}
    # Stable and its control are as many as all of the traffic needs.
    assert serving(world) == {old: 10, new: 3}
    world.verdict = Continue("less", 0.05)
    world.reconcile()
    assert world.rollout.weight == 30


def test_the_scaler_adds_pods_during_a_test_and_takes_none_from_what_is_judged(begun):
    world = begun("Canary", replicas=10, canary=CanarySpec(min_weight=0.2))
    new, old = change(world)
    until(world, "Judging")
    for desired, stable, side in ((20, 16, 4), (5, 1, 4)):
        world.desired = desired
        for _ in range(4):
            world.settle_pods()
            world.reconcile()
        sides = {(s.revision, s.cohort): n for s, n in world.deployments.items()}
        assert sides == {(old, ""): stable, (old, "control"): side, (new, ""): side}


@pytest.mark.parametrize("room", [4, 5, 6, 7])
def test_a_canary_with_little_room_is_promoted_without_ever_having_too_few(begun, room):
    """One pod more than the traffic needs is room enough, where there is no control."""
    world = begun("Canary", replicas=4, with_control=False)
    world.room = room
    world.verdict = ACCEPT
    new, old = change(world)
    if room == 4:
        assert world.run(400)[-1] == "Rejected"
        assert "no GPU" in world.rollout.rejected.reason
        assert serving(world) == {old: 4}
        return
    assert world.run() == FORWARD["Canary"]
    assert serving(world) == {new: 4}


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (0, 1), (2, 2), (1, 1), (3, 0)])
@pytest.mark.parametrize("room", [4, 5, 100])
def test_rolling_keeps_its_promise_and_does_not_lock_up_without_room(
    begun, surge, unavailable, room
):
    world = begun("Rolling", max_surge=surge, max_unavailable=unavailable)
    world.room = room
    new, old = change(world)
    if room == 4 and not unavailable:
        assert world.run(400)[-1] == "Rejected"
        assert serving(world) == {old: 4}
        return
    least = most = 4
    while world.rollout.phase != "Stable" or world.rollout.stable != new:
        world.settle_pods()
        counts = serving(world)
        least = min(least, sum(counts.values()))
        most = max(most, sum(world.deployments.values()))
        world.reconcile()
        world.now_s += 2
    world.run()
    assert serving(world) == {new: 4}
    assert least >= 4 - unavailable
    assert most <= 4 + surge
    if room == 100 and surge:
        assert least == 4, "fewer than wanted although there was room"


def test_blue_green_keeps_the_way_back_for_its_time_and_no_longer(begun):
    world = begun("BlueGreen", previous_kept_s=60)
    new, old = change(world)
    until(world, "Promoting")
    assert weights(world) == {(new, ""): 100}
    for _ in range(20):
        world.settle_pods()
        made = world.reconcile()
        world.now_s += 2
    assert world.rollout.phase == "Promoting"
    assert serving(world) == {old: 4, new: 4}
    assert 0 < made.wake_s < 60
    change(world, seed=0)
    world.reconcile()
    assert (world.rollout.phase, weights(world)) == ("RollingBack", {(old, ""): 100})
    assert world.run() == ["Discarding", "Rejected", "Stable"]
    change(world)
    world.run()
    assert serving(world) == {new: 4}


def test_pods_stay_until_every_gateway_obeys_the_routes(begun):
    """A canary that is promoted, and one that is rolled back, with a gateway that is late."""
    for verdict, waiting, after in (
        (ABORT, "RollingBack", "Discarding"),
        (ACCEPT, "Promoting", "Draining"),
    ):
        world = begun("Canary")
        change(world)
        until(world, "Judging")
        world.verdict = verdict
        world.deaf = {"b"}
        until(world, waiting)
        behind = f"gateway b obeys generation {world.gateways['b']} of the traffic"
        for _ in range(5):
            world.follow()
            made = world.reconcile()
            world.now_s += 2
            assert made.rollout.phase == waiting
            assert (behind in made.awaited, made.wake_s) == (True, LOOK_S)
        world.deaf = set()
        world.follow()
        made = world.reconcile()
        assert made.rollout.phase == after
        assert made.rollout.reason.startswith("2 of 2 gateways obey generation")


@pytest.mark.parametrize("kind", ["deaf", "silent"])
def test_a_gateway_that_hangs_holds_a_rollback_for_so_long_and_no_longer(begun, kind):
    world = begun("Canary")
    change(world)
    until(world, "Judging")
    setattr(world, kind, {"b"})
    world.verdict = ABORT
    until(world, "RollingBack")
    began_s = world.now_s
    until(world, "Discarding")
    assert LIMIT_S <= world.now_s - began_s + 2 <= LIMIT_S + 4
    assert "gateway b" in world.rollout.reason
    assert f"after {LIMIT_S:.0f} s" in world.rollout.reason


def test_without_a_gateway_nobody_is_waited_for(begun):
    world = begun("BlueGreen", previous_kept_s=0)
    world.gateways = {}
    change(world)
    assert world.run() == FORWARD["BlueGreen"]


def test_commands_are_read_once(begun):
    world = begun("Canary")
    change(world)
    until(world, "Judging")
    world.verdict = ACCEPT
    order(world, "pause")
    for _ in range(20):
        world.settle_pods()
        world.reconcile()
        world.now_s += 60
    assert world.rollout.phase == "Paused"
    order(world, "resume")
    world.reconcile()
    assert world.rollout.phase == "Judging"
    order(world, "abort")
    assert world.run() == ["RollingBack", "Discarding", "Rejected"]
    assert world.rollout.rejected.reason == "abort by hand"
    order(world, "resume")
    assert world.run()[0] == "Starting"
    assert world.rollout.phase == "Stable"


@pytest.mark.parametrize(
    ("strategy", "phase", "actions"),
    [
        ("Canary", "Stable", ()),
        ("Canary", "Judging", ("promote", "abort", "pause")),
        ("Canary", "Paused", ("promote", "abort", "resume")),
        ("BlueGreen", "Promoting", ("abort",)),
        ("Rolling", "Replacing", ("abort",)),
        ("Recreate", "Starting", ()),
        ("Rolling", "Rejected", ("resume",)),
    ],
)
def test_what_can_be_said_in_a_phase(strategy, phase, actions):
    assert commands.possible(strategy, phase) == actions


@pytest.mark.parametrize(
    "text", [None, "", "abort", "abort@x y", "abort@12345678", "delete@12345678 1"]
)
def test_what_is_no_command_is_none(text):
    assert commands.read(text) is None


def test_a_canary_without_anything_beside_it_is_just_started(begun):
    world = begun("Canary")
    world.bad.add(revision_of(world.spec))
    world.settle_pods()
    new, _ = change(world)
    assert world.run() == FORWARD["BlueGreen"]
    assert serving(world) == {new: 4}


def test_history_is_kept_to_its_limit_and_a_revision_that_comes_back_is_the_latest(begun):
    world = begun("Rolling", history=2)
    for seed in (1, 2, 3, 4, 2):
        new, _ = change(world, seed=seed)
        world.run()
    newest = sorted(world.history.values(), key=lambda entry: -entry.number)
    assert newest[0].revision == new
    assert len(newest) == 3  # the one in use, and two


# The phase in which a person takes the new revision back, and how.
TAKEN_BACK = {
    "Canary": ("Judging", "abort"),
    "BlueGreen": ("Promoting", "abort"),
    "Rolling": ("Replacing", "abort"),
    "Recreate": ("Starting", "another spec"),
}


def life(world, strategy, ending):
    """A rollout from its beginning to its end, and what is there then."""
    world.verdict = ACCEPT if ending == "promoted" else None
    change(world)
    if ending == "taken back":
        phase, how = TAKEN_BACK[strategy]
        until(world, phase)
        if how == "abort":
            order(world, how)
        else:
            change(world, seed=0)
    world.run()
    state = world.rollout
    rejected = state.rejected and (state.rejected.revision, state.rejected.reason)
    return state.phase, state.stable, rejected, serving(world), weights(world), set(world.history)


@pytest.mark.parametrize("ending", ["promoted", "taken back"])
@pytest.mark.parametrize("strategy", FORWARD)
def test_an_operator_that_dies_at_any_write_or_at_all_ends_the_same(begun, strategy, ending):
    world = begun(strategy, replicas=2)
    before = world.writes
    undisturbed = life(world, strategy, ending)
    numbers = range(before + 1, world.writes + 1)
    deaths = [{number} for number in numbers]
    # Each write is made at the second attempt, by another operator each time.
    deaths.append(set(range(before + 1, before + 10 * len(numbers), 2)))
    for dies_at in deaths:
        world = begun(strategy, replicas=2)
        assert world.writes == before
        world.dies_at = dies_at
        assert life(world, strategy, ending) == undisturbed
        assert world.writes >= min(dies_at)


ACTIONS = st.one_of(
    st.tuples(st.just("rounds"), st.integers(1, 8)),
    st.tuples(st.just("pods"), st.booleans()),
    st.tuples(st.just("reconcile"), st.integers(0, 4) | st.just(10**6)),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 60, 700])),
    st.tuples(st.just("spec"), st.integers(0, 3)),
    st.tuples(st.just("scale"), st.integers(1, 12)),
    st.tuples(st.just("room"), st.sampled_from([2, 5, 9, 1000])),
    st.tuples(st.just("bad"), st.integers(0, 3)),
    st.tuples(st.just("refused"), st.integers(0, 3)),
    st.tuples(st.just("verdict"), st.sampled_from([None, ACCEPT, ABORT, Continue("", 0.3)])),
    st.tuples(st.just("command"), st.sampled_from(["promote", "abort", "pause", "resume"])),
    st.tuples(st.just("strategy"), st.sampled_from(list(FORWARD))),
    st.tuples(st.just("follow"), st.just(None)),
    st.tuples(st.sampled_from(["deaf", "silent"]), st.sampled_from([set(), {"a"}, {"a", "b"}])),
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(FORWARD)), st.lists(ACTIONS, max_size=60))
def test_whatever_happens_invariants_hold_and_it_comes_to_rest(make_world, strategy, actions):
    """`World.check` holds at each look; then the world is kind, and the rollout ends."""
    world = make_world()
    world.spec = replace(world.spec, rollout=RolloutSpec(strategy=strategy, previous_kept_s=20))
    for what, value in actions:
        act(world, what, value)
    world.bad, world.refused, world.room, world.command = set(), set(), 1000, None
    world.deaf, world.silent = set(), set()
    # A crash is forgotten, and whoever put the model where it was missing deletes the preflight.
    world.pods = {
        pod.name: replace(pod, trouble=None, restarts=0)
        for pod in world.pods.values()
        if pod.phase != "Failed"
    }
    world.verdict = ACCEPT
    if world.rollout is not None and world.rollout.phase == "Paused":
        order(world, "resume")
    world.run()
    state = world.rollout
    assert state.phase in ("Stable", "Rejected")
    assert serving(world) == {state.stable: world.desired}
    assert weights(world) == {(state.stable, ""): 100}
    wanted = revision_of(world.spec)
    assert wanted == (state.stable if state.phase == "Stable" else state.rejected.revision)


def act(world, what, value):
    match what:
        case "pods":
            world.settle_pods(ready=value)
        case "reconcile":
            world.reconcile(writes=value)
        case "rounds":
            for _ in range(value):
                world.settle_pods()
                world.follow()
                world.reconcile()
                world.now_s += 2
        case "follow":
            world.follow()
        case "deaf" | "silent":
            setattr(world, what, value)
        case "time":
            world.now_s += value
        case "spec":
            change(world, seed=value)
        case "scale":
            world.desired = value
        case "room":
            world.room = value
        case "bad" | "refused":
            getattr(world, what).add(revision_of(replace(world.spec, seed=value)))
        case "verdict":
            world.verdict = value
        case "command" if world.rollout is not None:
            order(world, value)
        case "strategy":
            rollout = replace(world.spec.rollout, strategy=value)
            world.spec = replace(world.spec, rollout=rollout)
