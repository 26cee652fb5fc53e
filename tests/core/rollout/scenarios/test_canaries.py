"""Canaries from beginning to end: what the judge says, and pods for what was earned."""

import pytest

from penstock.core.canary.verdict import Abort, Accept, Continue
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.revision import revision_of

ACCEPT = Accept("it is as good")
ABORT = Abort("TTFT of the canary is +30 %")


def test_a_canary_that_the_judge_aborts_goes_and_its_reason_stays(start_service):
    world = start_service("Canary", replicas=10)
    new, old = world.change()
    world.until("Judging")
    world.settle_pods()
    assert world.reconcile().waiting_for == "there is no evidence yet"
    assert world.weights() == {(old, ""): 90, (old, "control"): 5, (new, ""): 5}
    assert world.counts() == {old: 11, new: 1}
    world.verdict = ABORT
    assert world.run() == ["RollingBack", "Discarding", "Rejected"]
    assert world.counts() == {old: 10}
    assert world.rollout.rejected.reason == ABORT.reason


def test_weight_grows_with_what_was_earned_and_only_onto_pods_that_are_ready(start_service):
    world = start_service("Canary", replicas=10)
    new, old = world.change()
    world.until("Judging")
    world.verdict = Continue("so far so good", 0.30)
    assert world.reconcile().waiting_for == "so far so good"
    assert (world.rollout.weight_percent, world.weights()[new, ""]) == (
        30,
        10,
    )  # one pod of each side
    for _ in range(3):
        world.settle_pods()
        world.reconcile()
    assert world.weights() == {(old, ""): 40, (old, "control"): 30, (new, ""): 30}
    # Stable and its control are as many as all of the traffic needs.
    assert world.counts() == {old: 10, new: 3}
    world.verdict = Continue("less", 0.05)
    world.reconcile()
    assert world.rollout.weight_percent == 30


def test_the_scaler_adds_pods_during_a_test_and_takes_none_from_what_is_judged(start_service):
    world = start_service("Canary", replicas=10, canary=CanarySpec(min_weight=0.2))
    new, old = world.change()
    world.until("Judging")
    for desired, stable, side in ((20, 16, 4), (5, 3, 4)):
        world.desired = desired
        for _ in range(4):
            world.settle_pods()
            world.reconcile()
        sides = {(s.revision, s.cohort): n for s, n in world.deployments.items()}
        assert sides == {(old, ""): stable, (old, "control"): side, (new, ""): side}


def test_stable_keeps_the_pods_that_its_share_needs(start_service):
    """A control of one pod in four takes a twentieth of the traffic off it, not a quarter."""
    world = start_service("Canary", replicas=4)
    new, old = world.change()
    world.until("Judging")
    for _ in range(3):
        world.settle_pods()
        world.reconcile()
    assert world.weights() == {(old, ""): 90, (old, "control"): 5, (new, ""): 5}
    sides = {(s.revision, s.cohort): n for s, n in world.deployments.items()}
    assert sides == {(old, ""): 4, (old, "control"): 1, (new, ""): 1}


@pytest.mark.parametrize("room", [4, 5, 6, 7])
@pytest.mark.parametrize(("limit", "said"), [("room", "no GPU"), ("quota", "exceeded quota")])
def test_a_canary_with_little_room_is_promoted_without_ever_having_too_few(
    start_service, limit, said, room
):
    """A pod more than the traffic needs is enough room for a canary without a control."""
    world = start_service("Canary", replicas=4, comparison="Stable")
    setattr(world, limit, room)
    world.verdict = ACCEPT
    new, old = world.change()
    if room == 4:
        assert world.run(400)[-1] == "Rejected"
        assert said in world.rollout.rejected.reason
        assert world.counts() == {old: 4}
        return
    assert world.run() == ["Starting", "Judging", "Growing", "Promoting", "Draining", "Stable"]
    assert world.counts() == {new: 4}


def test_a_canary_without_anything_beside_it_is_just_started(start_service):
    world = start_service("Canary")
    world.bad.add(revision_of(world.spec))
    world.settle_pods()
    new, _ = world.change()
    assert world.run() == ["Starting", "Promoting", "Draining", "Stable"]
    assert world.counts() == {new: 4}
