"""Rollouts of a service on two variants: each side on the same mix, and the mix changes no revision."""

from dataclasses import replace

import pytest
from tests.support.specs.service_spec import pod_resources

from penstock.core.canary.verdict import Accept
from penstock.core.spec.service import CONTROL, VariantSpec

CHEAP = VariantSpec("cheap", pod_resources("1", "1Gi"), 1.0, 0, 20)
STRONG = VariantSpec("strong", pod_resources("2", "2Gi", ("nvidia.com/gpu", 1)), 3.0, 0, 20)


@pytest.fixture
def mixed(start_service):
    """Six pods on the cheap one and two on the strong one."""

    def make(strategy="Canary", **rollout):
        world = start_service(strategy, 2, **rollout)
        world.spec = replace(world.spec, variants=(CHEAP, STRONG))
        world.desired, world.by_variant = 8, {"cheap": 6, "strong": 2}
        assert world.run() == []  # what had no variant has gone, and no revision is another
        assert by_variant(world) == {("", "cheap"): 6, ("", "strong"): 2}
        return world

    return make


def by_variant(world, revision=None):
    return {
        (placed.cohort, placed.variant): count
        for placed, count in world.deployments.items()
        if revision in (None, placed.revision) and count
    }


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Rolling", "Recreate"])
def test_a_new_revision_takes_over_on_the_same_mix(mixed, strategy):
    world = mixed(strategy)
    world.verdict = Accept("it is as good")
    new, _ = world.change()
    world.run()
    assert world.counts() == {new: 8}
    assert by_variant(world) == {("", "cheap"): 6, ("", "strong"): 2}
    assert world.weights() == {(new, ""): 100}


def test_a_canary_and_its_control_run_on_alike_nodes(mixed):
    world = mixed()
    new, old = world.change()
    world.until("Judging")
    state = world.rollout
    for weight in (13, 25, 38, 50):
        world.rollout = replace(state, weight_percent=weight)
        for _ in range(4):
            world.settle_pods()
            world.reconcile()
        canary, control = by_variant(world, new), by_variant(world, old)
        mine = {variant: count for (_, variant), count in canary.items()}
        theirs = {v: count for (cohort, v), count in control.items() if cohort == CONTROL}
        assert mine == theirs
        assert sum(mine.values()) == -(-8 * weight // 100)


def test_a_variant_that_is_removed_stays_until_the_other_serves(mixed):
    world = mixed("Rolling")
    world.spec = replace(world.spec, variants=(CHEAP,))
    world.desired, world.by_variant = 8, {"cheap": 8}
    world.reconcile()
    for _ in range(3):
        world.settle_pods(ready=False)
        world.reconcile()
    assert by_variant(world) == {("", "cheap"): 8, ("", "strong"): 2}
    assert world.run() == []
    assert by_variant(world) == {("", "cheap"): 8}


def test_without_the_scalers_word_it_stays_as_it_is(mixed):
    world = mixed()
    world.by_variant = {}
    assert world.run() == []
    assert by_variant(world) == {("", "cheap"): 6, ("", "strong"): 2}
