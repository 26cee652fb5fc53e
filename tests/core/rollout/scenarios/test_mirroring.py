"""Mirroring: which pods receive copies, and what ends the phase."""

import pytest

from penstock.core.canary.verdict import Abort, Accept, Continue, MirrorPassed
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.core.spec.canary import CanarySpec, MirrorSpec

SHOWN = MirrorPassed("200 copies showed no fault")


@pytest.fixture
def mirroring(start_service):
    """A canary that is shown copies, with the names of its revision and of stable."""
    canary = CanarySpec(min_weight=0.2, mirror=MirrorSpec(percent=50, duration_s=60.0))
    world = start_service("Canary", canary=canary)
    new, old = world.change()
    world.until("Mirroring")
    world.reconcile()
    return world, new, old


def test_copies_go_to_the_canary_and_its_control_and_traffic_to_stable_alone(mirroring):
    world, new, old = mirroring
    assert world.mirror == RolloutMirror((Side(new), Side(old, "control")), 50)
    assert set(world.weights()) <= {(old, ""), (old, "control")}
    assert sum(world.weights().values()) == 100
    assert world.generation == max(world.told)


@pytest.mark.parametrize("verdict", [None, Continue("not yet", 0.0), Accept("an old word")])
def test_nothing_but_the_end_of_the_showing_gives_it_traffic(mirroring, verdict):
    world, new, _ = mirroring
    world.shown = verdict
    for _ in range(20):
        world.settle_pods()
        world.reconcile()
        world.now_s += 600
    assert world.rollout.phase == "Mirroring"
    assert (new, "") not in world.weights()


def test_then_it_is_judged_as_any_canary_and_copied_no_more(mirroring):
    world, new, old = mirroring
    world.shown = SHOWN
    world.reconcile()
    assert world.rollout.phase == "Judging"
    world.settle_pods()
    world.reconcile()
    assert world.mirror is None
    assert world.weights() == {(old, ""): 60, (old, "control"): 20, (new, ""): 20}
    world.verdict = Accept("it is as good")
    assert world.run() == ["Growing", "Promoting", "Draining", "Stable"]


def test_a_fault_rejects_it_before_anybody_met_it(mirroring):
    world, new, old = mirroring
    generation = world.generation
    world.shown = Abort("7 of 7 answers of the canary are empty", "Gate")
    assert world.run() == ["Discarding", "Rejected"]
    assert world.rollout.rejected.reason == "7 of 7 answers of the canary are empty"
    assert world.mirror is None
    assert world.generation > generation
    met = {share.side for shares in world.told.values() for share in shares}
    assert Side(new) not in met
    assert world.counts() == {old: 4}


@pytest.mark.parametrize(
    ("action", "phases"),
    [
        ("abort", ["Discarding", "Rejected"]),
        ("promote", ["Growing", "Promoting", "Draining", "Stable"]),
    ],
)
def test_a_person_may_end_it(mirroring, action, phases):
    world, _, _ = mirroring
    world.order(action)
    assert world.run() == phases
