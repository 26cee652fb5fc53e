"""Rollouts of a service at zero replicas that accepts revisions without engines."""

from dataclasses import replace
from typing import get_args

import pytest

from penstock.core.spec.rollout import Strategy

STRATEGIES = get_args(Strategy)
PREFLIGHT_PASSED = "the service is at zero, and the preflight of revision {} passed"


@pytest.fixture
def at_zero(start_service):
    """`at_zero(strategy, …)` -> a service at zero, which has served its first revision."""

    def make(strategy, **rollout):
        world = start_service(strategy, replicas=1, **{"at_zero": "Accept", **rollout})
        world.spec = replace(world.spec, scaling=replace(world.spec.scaling, min_replicas=0))
        world.desired = 0
        assert world.run() == []
        assert world.serving() == []
        return world

    return make


def replicas(world):
    """Replicas of the Deployments by revision."""
    return {placed.revision: n for placed, n in world.deployments.items()}


def settle(world):
    """Run to the end of the rollout, in which no engine may start."""
    phases = len(world.phases)
    for _ in range(20):
        world.settle_pods()
        assert world.serving() == []
        world.follow()
        world.reconcile()
        world.now_s += 2
    assert world.rollout.is_settled
    return world.phases[phases:]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_revision_is_accepted_by_its_preflight_and_the_next_request_starts_it(at_zero, strategy):
    world = at_zero(strategy)
    new, _ = world.change()
    assert settle(world) == ["Replacing", "Stable"]
    assert world.rollout.reason == PREFLIGHT_PASSED.format(new)
    assert (world.weights(), replicas(world)) == ({(new, ""): 100}, {new: 0})
    world.desired = 1
    assert world.run() == []
    assert world.counts() == {new: 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_revision_whose_preflight_fails_is_rejected_and_the_old_one_wakes(at_zero, strategy):
    world = at_zero(strategy)
    new, old = world.change()
    world.refused.add(new)
    assert settle(world) == ["Replacing", "RollingBack", "Rejected"]
    assert "ModelNotFound" in world.rollout.rejected.reason
    world.desired = 1
    assert world.run() == []
    assert (world.counts(), world.weights()) == ({old: 1}, {(old, ""): 100})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_request_before_the_preflight_passed_starts_the_stable_revision(at_zero, strategy):
    world = at_zero(strategy)
    new, old = world.change()
    run_preflight = world.run_preflight
    world.run_preflight = lambda _: None
    world.until("Replacing")
    world.reconcile()
    world.desired = 1
    for _ in range(3):
        world.settle_pods()
        world.reconcile()
    assert (world.counts(), world.weights()) == ({old: 1}, {(old, ""): 100})
    assert world.rollout.phase == "Replacing"

    world.run_preflight = run_preflight
    assert world.run() == ["Stable"]
    assert (world.counts(), world.weights()) == ({new: 1}, {(new, ""): 100})


def test_a_revision_that_crashes_in_a_rollout_that_was_woken_is_rolled_back(at_zero):
    world = at_zero("Canary")
    new, old = world.change()
    world.bad.add(new)
    world.until("Replacing")
    world.desired = 1
    assert world.run() == ["RollingBack", "Rejected"]
    assert world.counts() == {old: 1}


def test_a_request_after_the_acceptance_finds_the_new_revision_alone(at_zero):
    """A revision that was accepted without an engine is not rolled back."""
    world = at_zero("BlueGreen", promotion="Manual")
    new, _ = world.change()
    settle(world)
    world.bad.add(new)
    world.desired = 1
    for _ in range(5):
        world.settle_pods()
        world.reconcile()
    assert (world.rollout.phase, replicas(world)) == ("Stable", {new: 1})


def test_the_next_revision_replaces_one_whose_preflight_still_runs(at_zero):
    world = at_zero("Canary")
    world.change(seed=1)
    world.until("Replacing")
    newest, _ = world.change(seed=2)
    assert settle(world) == ["Stable"]
    assert (world.rollout.stable, replicas(world)) == (newest, {newest: 0})


@pytest.mark.parametrize(
    ("strategy", "first"),
    [("Canary", "Starting"), ("BlueGreen", "Starting"), ("Rolling", "Replacing"), ("Recreate", "Stopping")],
)  # fmt: skip
def test_without_it_a_revision_is_tried_with_an_engine(at_zero, strategy, first):
    world = at_zero(strategy, at_zero="Try")
    new, _ = world.change()
    world.until(first)
    world.settle_pods()
    for _ in range(3):
        made = world.reconcile()
    assert made.total == 1
    world.until("Stable", rounds=200)  # BlueGreen keeps the old pods for five minutes
    assert world.rollout.stable == new


def test_it_ends_when_the_user_no_longer_accepts_revisions_at_zero(at_zero):
    world = at_zero("Canary")
    new, _ = world.change()
    world.until("Replacing")
    world.spec = replace(world.spec, rollout=replace(world.spec.rollout, at_zero="Try"))
    world.reconcile()
    world.settle_pods()
    assert world.reconcile().total == 1
    world.until("Stable")
    assert world.rollout.stable == new


def test_a_rollout_that_began_with_engines_keeps_them(start_service):
    world = start_service("Rolling", replicas=2, at_zero="Accept")
    world.spec = replace(world.spec, scaling=replace(world.spec.scaling, min_replicas=0))
    new, _ = world.change()
    world.until("Replacing")
    world.desired = 0
    assert world.reconcile().total == 1
    world.until("Stable")
    assert world.rollout.stable == new
