"""Each strategy from beginning to end in a small cluster."""

from dataclasses import replace

import pytest

from penstock.core.canary.verdict import Accept
from penstock.core.observed.rollout_state import RolloutState

ACCEPT = Accept("it is as good")


FORWARD = {
    "Canary": ["Starting", "Judging", "Growing", "Promoting", "Draining", "Stable"],
    "BlueGreen": ["Starting", "Promoting", "Draining", "Stable"],
    "Rolling": ["Replacing", "Stable"],
    "Recreate": ["Stopping", "Starting", "Stable"],
}


@pytest.mark.parametrize("strategy", FORWARD)
def test_a_good_revision_takes_over(start_service, strategy):
    world = start_service(strategy)
    world.verdict = ACCEPT
    new, _ = world.change()
    assert world.run() == FORWARD[strategy]
    assert world.counts() == {new: 4}
    assert world.weights() == {(new, ""): 100}


@pytest.mark.parametrize(
    ("strategy", "way"),
    [
        ("Canary", ["Starting", "Discarding", "Rejected"]),
        ("BlueGreen", ["Starting", "Discarding", "Rejected"]),
        ("Rolling", ["Replacing", "RollingBack", "Rejected"]),
    ],
)
@pytest.mark.parametrize("kind", ["bad", "refused"])
def test_one_that_cannot_start_is_rejected_and_not_tried_again(start_service, strategy, way, kind):
    world = start_service(strategy)
    new, old = world.change()
    getattr(world, kind).add(new)
    assert world.run() == way
    assert world.counts() == {old: 4}
    assert world.weights() == {(old, ""): 100}
    assert world.rollout.rejected.revision == new
    assert ("ModelNotFound" if kind == "refused" else "crashed") in world.rollout.rejected.reason
    assert world.run() == []
    world.spec = replace(world.spec, scaling=replace(world.spec.scaling, max_replicas=30))
    assert world.run() == []
    back, _ = world.change(seed=0)
    assert (back, world.run()) == (old, ["Stable"])


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (0, 1), (2, 2), (1, 1), (3, 0)])
@pytest.mark.parametrize("room", [4, 5, 100])
@pytest.mark.parametrize("limit", ["room", "quota"])
def test_rolling_keeps_its_promise_and_does_not_lock_up_without_room(
    start_service, surge, unavailable, limit, room
):
    world = start_service("Rolling", max_surge=surge, max_unavailable=unavailable)
    setattr(world, limit, room)
    new, old = world.change()
    if room == 4 and not unavailable:
        assert world.run(400)[-1] == "Rejected"
        assert world.counts() == {old: 4}
        return
    least = most = 4
    while world.rollout.phase != "Stable" or world.rollout.stable != new:
        world.settle_pods()
        counts = world.counts()
        least = min(least, sum(counts.values()))
        most = max(most, sum(world.deployments.values()))
        world.reconcile()
        world.now_s += 2
    world.run()
    assert world.counts() == {new: 4}
    assert least >= 4 - unavailable
    assert most <= 4 + surge
    if room == 100 and surge:
        assert least == 4, "fewer than wanted although there was room"


def test_blue_green_keeps_the_way_back_for_its_time_and_no_longer(start_service):
    world = start_service("BlueGreen", scale_down_delay_s=60)
    new, old = world.change()
    world.until("Promoting")
    assert world.weights() == {(new, ""): 100}
    for _ in range(20):
        world.settle_pods()
        made = world.reconcile()
        world.now_s += 2
    assert world.rollout.phase == "Promoting"
    assert world.counts() == {old: 4, new: 4}
    assert 0 < made.wake_s < 60
    world.change(seed=0)
    world.reconcile()
    assert (world.rollout.phase, world.weights()) == ("RollingBack", {(old, ""): 100})
    assert world.run() == ["Discarding", "Rejected", "Stable"]
    world.change()
    world.run()
    assert world.counts() == {new: 4}


def test_history_is_kept_to_its_limit_and_a_revision_that_comes_back_is_the_latest(start_service):
    world = start_service("Rolling", history=2)
    for seed in (1, 2, 3, 4, 2):
        new, _ = world.change(seed=seed)
        world.run()
    newest = sorted(world.history.values(), key=lambda entry: -entry.number)
    assert newest[0].revision == new
    assert len(newest) == 3  # the one in use, and two


def test_blue_green_without_auto_promotion_waits_for_a_person(start_service):
    world = start_service("BlueGreen", promotion="Manual", scale_down_delay_s=0)
    new, old = world.change()
    world.until("Waiting")
    for _ in range(10):
        world.settle_pods()
        world.reconcile()
        world.now_s += 3600
    assert (world.rollout.phase, world.weights()) == ("Waiting", {(old, ""): 100})
    assert world.counts() == {old: 4, new: 4}
    world.order("promote")
    assert world.run() == ["Promoting", "Draining", "Stable"]
    assert world.weights() == {(new, ""): 100}


def test_a_spec_that_asks_for_nobody_any_more_switches(start_service):
    world = start_service("BlueGreen", promotion="Manual", scale_down_delay_s=0)
    world.change()
    world.until("Waiting")
    by_itself = replace(world.spec.rollout, promotion="Automatic")
    world.spec = replace(world.spec, rollout=by_itself)
    assert world.run() == ["Promoting", "Draining", "Stable"]


def test_a_switch_that_nobody_wants_is_taken_back_without_traffic(start_service):
    world = start_service("BlueGreen", promotion="Manual")
    _, old = world.change()
    world.until("Waiting")
    world.order("abort")
    assert world.run() == ["Discarding", "Rejected"]
    assert world.counts() == {old: 4}


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_a_revision_that_the_spec_has_left_may_be_asked_for_again(start_service, strategy):
    """A revision that the spec merely left is not rejected, so it needs no `resume`."""
    world = start_service(strategy)
    new, _ = world.change(seed=1)
    world.until("Judging" if strategy == "Canary" else "Starting")
    world.change(seed=2)
    world.until("Discarding")
    world.change(seed=1)
    world.until("Rejected")
    assert world.rollout.rejected is None
    world.until("Starting")
    assert world.rollout.revision == new


def test_back_to_what_serves_is_calm_though_nothing_was_rejected(start_service):
    world = start_service()
    _, old = world.change(seed=1)
    world.until("Judging")
    world.change(seed=0)
    assert world.run()[-1] == "Stable"
    assert (world.rollout.stable, world.rollout.rejected) == (old, None)


def test_a_status_without_a_rollout_is_of_what_serves_or_of_a_service_that_is_new():
    assert RolloutState.of({}, 5.0) is None
    serving = RolloutState.of({"stableRevision": "a" * 8}, 5.0)
    assert serving == RolloutState("Rolling", "Stable", 5.0, "it already serves", "a" * 8, None, 1)


def test_a_revision_that_serves_is_not_rejected_for_having_come_back_late(start_service):
    """The spec asks for the old revision in the middle of a Rolling rollout; its pods crash, then heal."""
    world = start_service("Rolling")
    _, old = world.change()
    world.until("Replacing")
    for _ in range(3):
        world.settle_pods()
        world.reconcile()
        world.now_s += 2
    world.spec = replace(world.spec, settings={**world.spec.settings, "engine.seed": 0})
    world.reconcile()
    world.bad = {old}
    world.until("RollingBack")
    world.bad = set()
    world.pods = {name: replace(p, trouble=None, restarts=0) for name, p in world.pods.items()}
    assert world.run()[-1] == "Stable"
    assert (world.rollout.stable, world.rollout.rejected) == (old, None)
    assert world.counts() == {old: 4}


@pytest.mark.parametrize("strategy", ["Canary", "Rolling"])
def test_a_first_revision_that_is_up_shows_the_strategy_of_the_spec(start_service, strategy):
    assert start_service(strategy).rollout.strategy == strategy


@pytest.mark.parametrize("action", ["spec", "undo"])
def test_pods_that_do_not_end_block_no_later_rollout(start_service, action):
    world = start_service("BlueGreen", scale_down_delay_s=0)
    world.is_held = True
    world.change()
    world.until("Draining")
    world.settle_pods()
    assert "still exist" in world.reconcile().waiting_for
    wanted, _ = world.change(seed=0 if action == "undo" else 2)
    assert world.run()[-5:] == ["Stable", "Starting", "Promoting", "Draining", "Stable"]
    assert world.rollout.stable == wanted


def test_pods_that_do_not_end_are_waited_for_until_their_grace_period_is_over(start_service):
    world = start_service("BlueGreen", scale_down_delay_s=0)
    world.is_held = True
    new, old = world.change()
    assert world.run()[-2:] == ["Draining", "Stable"]
    assert world.rollout.reason.startswith(
        f"the grace period of pods without traffic is over, but chat-{old}-"
    )
    assert world.counts()[new] == 4


def test_recreate_waits_for_old_pods_whose_place_the_new_ones_take(start_service):
    world = start_service("Recreate", replicas=2)
    world.is_held = True
    _, old = world.change()
    world.until("Stopping")
    world.settle_pods()
    assert world.reconcile().overdue == ""
    world.settle_pods()
    made = world.reconcile()
    assert made.waiting_for.startswith(f"chat-{old}-")
    assert made.wake_s == pytest.approx(world.spec.termination_grace_s + 30, abs=5)
    world.now_s += made.wake_s
    overdue = world.reconcile().overdue
    assert overdue == f"old pods have not ended in time: {made.waiting_for}"
    world.is_held = False
    assert world.run() == ["Starting", "Stable"]
