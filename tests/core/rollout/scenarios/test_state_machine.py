"""Invariants hold for any order of events, from any phase, and every rollout ends."""

import dataclasses
from copy import copy
from dataclasses import replace
from functools import cache
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.rollout.scenarios.world import World

from penstock.core.canary.verdict import Abort, Accept, Continue, MirrorPassed
from penstock.core.spec.canary import MirrorSpec
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import AtZero, RolloutSpec, Strategy

STRATEGIES = get_args(Strategy)
ACCEPT = Accept("it is as good")
SHOWN = MirrorPassed("200 copies showed no fault")
ABORT = Abort("TTFT of the canary is +30 %")


# Phases in which a world starts, by strategy. None: there is no service yet.
STARTS = {
    "Canary": (
        None, "Starting", "Mirroring", "Judging", "Paused", "Growing", "Promoting", "Draining", "RollingBack",
        "Discarding", "Rejected",
    ),
    "BlueGreen": (
        None, "Starting", "Waiting", "Promoting", "Draining", "RollingBack", "Discarding", "Rejected",
    ),
    "Rolling": (None, "Replacing", "RollingBack", "Rejected"),
    "Recreate": (None, "Stopping", "Starting"),
}  # fmt: skip
WAYS = [(strategy, phase) for strategy, phases in STARTS.items() for phase in phases]
LAST_BEFORE_ROLLBACK = {"Canary": "Judging", "BlueGreen": "Promoting", "Rolling": "Replacing"}


def world_in(strategy, phase):
    """A service of three pods in this phase of the rollout of its second revision."""
    made = _world_in(strategy, phase)
    fields = {field.name: copy(getattr(made, field.name)) for field in dataclasses.fields(made)}
    return World(**fields)


@cache
def _world_in(strategy, phase):
    world = World(desired=3)
    rollout = RolloutSpec(strategy=strategy, scale_down_delay_s=20)
    if phase == "Mirroring":
        rollout = replace(rollout, canary=replace(rollout.canary, mirror=MirrorSpec()))
    if phase == "Waiting":
        rollout = replace(rollout, promotion="Manual")
    world.spec = replace(world.spec, rollout=rollout)
    if phase is None:
        return world
    world.run()
    world.change()
    world.reconcile()
    if phase == "Paused":
        world.until("Judging")
        world.order("pause")
    elif phase in ("RollingBack", "Discarding", "Rejected"):
        world.until(LAST_BEFORE_ROLLBACK[strategy])
        world.order("abort")
    elif phase in ("Growing", "Promoting", "Draining"):
        world.verdict = ACCEPT
    world.until(phase)
    world.verdict = None
    return world


ACTIONS = st.one_of(
    st.tuples(st.just("rounds"), st.integers(1, 8)),
    st.tuples(st.just("pods"), st.booleans()),
    st.tuples(st.just("reconcile"), st.integers(0, 4) | st.just(10**6)),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 60, 700])),
    st.tuples(st.just("spec"), st.integers(0, 3)),
    st.tuples(st.just("scale"), st.integers(0, 12)),
    st.tuples(st.just("min_replicas"), st.integers(0, 1)),
    st.tuples(st.just("at_zero"), st.sampled_from(get_args(AtZero))),
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


OBSTACLES = {
    "gateways that lag": [("deaf", {"a"}), ("silent", {"b"})],
    "pods that stay": [("is_held", True)],
    "pods without room": [("room", 4)],
    "new pods that crash": [("bad", 1)],
    "a preflight that fails": [("refused", 1)],
    "a user who resumes what crashes": [("command", "resume"), ("bad", 1)],
    "new pods that are no longer ready": [("unready", "revision")],
    "old pods that are no longer ready": [("unready", "stable")],
    "a canary that earns more": [("verdict", Continue("", 0.3))],
    "a canary that is rejected": [("verdict", ABORT), ("shown", ABORT)],
    "a canary that is approved": [("verdict", ACCEPT), ("shown", SHOWN)],
}
CASES = [
    (strategy, phase, obstacle)
    for strategy, phase in WAYS
    if phase is not None
    for obstacle in OBSTACLES
    if strategy == "Canary" or "canary" not in obstacle
    # A canary that is judged does not take over from a stable revision without ready pods.
    if obstacle != "old pods that are no longer ready" or phase not in ("Judging", "Paused")
]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "phase", "obstacle"), CASES)
def test_no_phase_lasts_longer_than_its_limit(strategy, phase, obstacle):
    """`World.check` says so of each plan; at last nothing goes on but what a user or the judge ends."""
    world = world_in(strategy, phase)
    for what, value in OBSTACLES[obstacle]:
        act(world, what, value)
    before = None
    # Long enough for each phase up to the end of a rollback, with the writes between.
    for round_s in (2, 2, 31, 2, 76, 2, 601, 2, 31, 2, 76, 2, 601, 2, 2):
        world.settle_pods(ready="no longer ready" not in obstacle)
        world.follow()
        made = world.reconcile()
        world.now_s += round_s
        if made.is_empty and made.rollout.is_settled and made.rollout == before:
            return
        before = made.rollout
    is_open = world.rollout.phase in ("Judging", "Mirroring", "Waiting", "Paused")
    assert world.rollout.is_settled or is_open or made.overdue


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WAYS), st.lists(ACTIONS, max_size=40))
def test_whatever_happens_invariants_hold_and_it_comes_to_rest(way, actions):
    """`World.check` holds for each plan; then the world is kind, and the rollout ends."""
    world = world_in(*way)
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
    replicas = max(world.desired, world.spec.scaling.min_replicas)
    assert world.counts() == ({state.stable: replicas} if replicas else {})
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
        case "min_replicas":
            scaling = replace(world.spec.scaling, min_replicas=value)
            world.spec = replace(world.spec, scaling=scaling)
        case "at_zero":
            rollout = replace(world.spec.rollout, at_zero=value)
            world.spec = replace(world.spec, rollout=rollout)
        case "room" | "quota" | "is_held":
            setattr(world, what, value)
        case "bad" | "refused":
            getattr(world, what).add(
                revision_of(
                    replace(world.spec, settings={**world.spec.settings, "engine.seed": value})
                )
            )
        case "unready" if world.rollout is not None:
            for pod in world.serving():
                if pod.revision == getattr(world.rollout, value):
                    world.pods[pod.name] = replace(pod, is_ready=False, ready_at=None)
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
