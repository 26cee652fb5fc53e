"""Rare cases in which the rule by objectives once kept or added the wrong replicas."""

from dataclasses import replace

import pytest
from tests.core.scaling.by_objectives.world import (
    MODEL,
    OBJECTIVES,
    PROMPT_TOKENS,
    RULE,
    STARTUP_S,
    World,
    note,
)

from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.by_objectives.what_if import under_load
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import EngineReading, GatewayReading, Missing, Observation
from penstock.core.scaling.variants.mixed import Variant

SLOW = Variant("slow", MODEL, 1.1, 0, 8)
FAST = Variant("fast", MODEL.times(0.25), 4.0, 0, 8)


class MixedWorld(World):
    """World on two variants, of which one is four times as fast."""

    def __init__(self, slow: int, fast: int) -> None:
        rule = replace(RULE, variants=(SLOW, FAST))
        super().__init__(slow + fast, Bounds(1, 8), rule)
        self.by_variant = {"slow": slow, "fast": fast}

    def observation(self) -> Observation:
        if self.decision is not None and self.decision.by_variant:
            self.by_variant = dict(self.decision.by_variant)
        names = [name for name, count in self.by_variant.items() for _ in range(count)]
        seen = super().observation()
        pods = (
            replace(pod, name=f"{name}-{pod.name}", variant=name)
            for pod, name in zip(seen.pods, names, strict=True)
        )
        return replace(seen, pods=tuple(pods), by_variant=self.by_variant)


class BacklogWorld(World):
    """World in which requests wait all the time, at the gateway or at the first engine."""

    waiting, prompt_tokens, is_at_gateway = 0, PROMPT_TOKENS, True

    def observation(self) -> Observation:
        seen, tokens = super().observation(), self.waiting * self.prompt_tokens
        first, *others = seen.pods
        if self.is_at_gateway:
            assert isinstance(seen.gateway, GatewayReading)
            queued = replace(seen.gateway, queued=self.waiting, queued_prompt_tokens=tokens)
            return replace(seen, gateway=queued)
        assert isinstance(first.reading, EngineReading)
        behind = replace(first.reading, waiting=self.waiting, prefill_tokens_pending=tokens)
        return replace(seen, pods=(replace(first, reading=behind), *others))


def test_need_of_the_window_is_held_by_replicas_of_any_speed() -> None:
    """Two slow replicas are more than one fast replica, but hold less."""
    world = MixedWorld(slow=2, fast=1)
    world.runs(60, 17.0)
    world.runs(60, 6.0)
    assert world.by_variant["fast"] == 1


def test_prior_start_up_of_a_variant_that_never_ran_is_not_waited_for() -> None:
    world = MixedWorld(slow=0, fast=2)
    world.runs(60, 17.0)
    assert f"in {STARTUP_S + 4:.0f} s by its forecast" in note(world.decision, "forecast")
    started = (
        replace(pod, name=f"new-{pod.name}", created_s=-20.0) for pod in world.observation().pods
    )
    world.runs(2, 17.0, pods=tuple(started))
    assert "in 24 s by its forecast" in note(world.decision, "forecast")


def test_load_across_a_gap_in_the_metrics_is_no_error_of_a_forecast() -> None:
    """The load doubles while the gateway cannot be reached."""
    world = World(2, Bounds(1, 20))
    world.runs(1800, 8.0)
    before = world.state.forecast.errors
    world.runs(600, 16.0, gateway=Missing("gateway", "timeout"))
    world.runs(STARTUP_S, 16.0)
    assert world.state.forecast.errors.beyond == before.beyond
    assert world.state.forecast.errors.watched_s == before.watched_s
    world.runs(20, 16.0)
    assert world.state.forecast.errors.watched_s > before.watched_s


@pytest.mark.parametrize("at_gateway", [False, True])
def test_load_that_is_tried_has_its_backlog(*, at_gateway: bool) -> None:
    world = BacklogWorld(2, Bounds(1, 20))
    world.runs(600, 8.0)
    world.waiting, world.is_at_gateway = 20, at_gateway
    world.runs(130, 8.0)
    state = world.state
    world.runs(2, 8.0)
    assert world.decision is not None
    settings = Settings(RULE, OBJECTIVES, world.bounds, max_num_batched_tokens=512)
    tick = Tick(settings, state, world.observation(), world.decision)
    once, twice = (
        float(note(under_load(tick, factor), "need").split(", and ")[1].split()[0])
        for factor in (1.0, 2.0)
    )
    assert once > 0
    assert twice == pytest.approx(2 * once, abs=0.011)


def test_changed_objectives_are_no_error_of_a_forecast() -> None:
    """Replicas serve fewer requests under a shorter TPOT, and the load is the same."""
    world = World(20, Bounds(20, 20))
    world.runs(1800, 20.0)
    before = world.state.forecast
    state, shorter = world.state, replace(OBJECTIVES, tpot_s=0.025)
    for _ in range(100):
        world.now_s += RULE.period_s
        world.arrivals += 20.0 * RULE.period_s
        _, state = RULE.decide(shorter, world.bounds, world.observation(), state)
    grown = state.forecast.now.load / before.now.load
    assert grown > 2
    errors = state.forecast.errors
    assert errors.beyond[1] == pytest.approx(before.errors.beyond[1], abs=0.01)
    assert errors.peak == pytest.approx(grown * before.errors.peak, rel=0.05)
    assert errors.load == pytest.approx(grown * before.errors.load, rel=0.05)
