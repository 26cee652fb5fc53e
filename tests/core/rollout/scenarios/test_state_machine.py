"""Invariants hold for any order of events, and every rollout ends."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.rollout.scenarios.world import World

from penstock.core.canary.verdict import Abort, Accept, Continue, MirrorPassed
from penstock.core.spec.canary import MirrorSpec
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import RolloutSpec, Strategy

STRATEGIES = get_args(Strategy)
ACCEPT = Accept("it is as good")
SHOWN = MirrorPassed("200 copies showed no fault")
ABORT = Abort("TTFT of the canary is +30 %")


ACTIONS = st.one_of(
    st.tuples(st.just("rounds"), st.integers(1, 8)),
    st.tuples(st.just("pods"), st.booleans()),
    st.tuples(st.just("reconcile"), st.integers(0, 4) | st.just(10**6)),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 60, 700])),
    st.tuples(st.just("spec"), st.integers(0, 3)),
    st.tuples(st.just("scale"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["room", "quota"]), st.sampled_from([2, 5, 9, 1000])),
    st.tuples(st.just("is_held"), st.booleans()),
    st.tuples(st.just("bad"), st.integers(0, 3)),
    st.tuples(st.just("refused"), st.integers(0, 3)),
    st.tuples(st.just("verdict"), st.sampled_from([None, ACCEPT, ABORT, Continue("", 0.3)])),
    st.tuples(st.just("shown"), st.sampled_from([None, ABORT, SHOWN])),
    st.tuples(st.just("mirror"), st.sampled_from([None, MirrorSpec()])),
    st.tuples(st.just("switches"), st.booleans()),
    st.tuples(st.just("command"), st.sampled_from(["promote", "abort", "pause", "resume"])),
    st.tuples(st.just("strategy"), st.sampled_from(STRATEGIES)),
    st.tuples(st.just("follow"), st.just(None)),
    st.tuples(st.sampled_from(["deaf", "silent"]), st.sampled_from([set(), {"a"}, {"a", "b"}])),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(STRATEGIES), st.lists(ACTIONS, max_size=60))
def test_whatever_happens_invariants_hold_and_it_comes_to_rest(strategy, actions):
    """`World.check` holds at each look; then the world is kind, and the rollout ends."""
    world = World()
    world.spec = replace(world.spec, rollout=RolloutSpec(strategy=strategy, scale_down_delay_s=20))
    for what, value in actions:
        act(world, what, value)
    world.bad, world.refused, world.command = set(), set(), None
    world.room = world.quota = 1000
    world.is_held = False
    world.deaf, world.silent = set(), set()
    # A crash is forgotten, and the user who supplied the missing model deletes the preflight.
    world.pods = {
        pod.name: replace(pod, trouble=None, restarts=0)
        for pod in world.pods.values()
        if pod.phase != "Failed"
    }
    world.verdict, world.shown = ACCEPT, SHOWN
    act(world, "switches", True)
    if world.rollout is not None and world.rollout.phase == "Paused":
        world.order("resume")
    world.run()
    state = world.rollout
    assert state.phase in ("Stable", "Rejected")
    assert world.counts() == {state.stable: world.desired}
    assert world.weights() == {(state.stable, ""): 100}
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
            world.change(seed=value)
        case "scale":
            world.desired = value
        case "room" | "quota" | "is_held":
            setattr(world, what, value)
        case "bad" | "refused":
            getattr(world, what).add(
                revision_of(
                    replace(world.spec, settings={**world.spec.settings, "engine.seed": value})
                )
            )
        case "verdict" | "shown":
            setattr(world, what, value)
        case "mirror":
            canary = replace(world.spec.rollout.canary, mirror=value)
            world.spec = replace(world.spec, rollout=replace(world.spec.rollout, canary=canary))
        case "switches":
            rollout = replace(world.spec.rollout, promotion="Automatic" if value else "Manual")
            world.spec = replace(world.spec, rollout=rollout)
        case "command" if world.rollout is not None:
            world.order(value)
        case "strategy":
            rollout = replace(world.spec.rollout, strategy=value)
            world.spec = replace(world.spec, rollout=rollout)
