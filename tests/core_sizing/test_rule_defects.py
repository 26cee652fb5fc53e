"""Rare cases in which the rule by objectives once kept or added the wrong replicas."""

from dataclasses import replace

from core_sizing.world import MODEL, RULE, STARTUP_S, World, note

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing, Observation
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
