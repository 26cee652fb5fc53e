"""Defects of the rule by objectives that random observations have shown."""

from dataclasses import replace

import pytest
from tests.core.scaling.by_objectives.test_rule_defects import FAST, SLOW, MixedWorld
from tests.core.scaling.by_objectives.world import OBJECTIVES, RULE, STARTUP_S, World, engine

from penstock.core.scaling.by_objectives.outcomes import Outcomes
from penstock.core.scaling.by_objectives.record import Learned
from penstock.core.scaling.delays import ScaleUpDelay
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.learned.startup import LONGEST_S, StartUp
from penstock.core.scaling.learned.windows import window_between
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing, PodView

# Time of the operator's clock, in seconds since 1970.
TODAY_S = 1.7e9


def test_new_operator_still_knows_how_many_requests_were_late() -> None:
    old, new = World(1, Bounds(1, 20), late=0.2), World(1, Bounds(1, 20), late=0.2)
    old.now_s = TODAY_S
    old.runs(1200, 4.0)
    new.state = Learned.of(old.state).restored(RULE.initial())
    new.now_s, new.arrivals = old.now_s, old.arrivals
    new.runs(2, 4.0)
    assert new.state.outcomes == old.state.outcomes


def test_pod_that_never_starts_does_not_keep_the_others() -> None:
    """A pod without a node stays pending."""
    world = World(4, Bounds(1, 20))
    before = world.runs(900, 20.0)[-1]
    created_s, asked = world.now_s, []

    def with_pending() -> dict[str, object]:
        pending = PodView("pending", "Starting", created_s, None, None)
        return {"pods": (*world.observation().pods[:-1], pending)}

    for _ in range(550):
        asked += world.runs(2, 2.0, **with_pending())
    assert set(asked[:290]) == {before}
    assert asked[-1] == 1


def test_pod_that_waited_hours_for_a_node_is_no_start_up() -> None:
    pods = tuple(
        PodView(f"pod-{i}", "Ready", 0.0, took_s, None)
        for i, took_s in enumerate((LONGEST_S + 1, 90.0))
    )
    assert StartUp(STARTUP_S).updated(pods[:1]).expected_s == STARTUP_S
    assert StartUp(STARTUP_S).updated(pods).expected_s == 90.0


def test_time_at_the_maximum_is_no_scale_up() -> None:
    """The fourth replica is removed after the delay, because the last scale-up was long ago."""
    world = World(4, Bounds(1, 4))
    world.runs(1800, 60.0)
    assert world.runs(STARTUP_S + 200, 13.0)[-1] == 3


@pytest.mark.parametrize("gap_s", [600.0, 3600.0])
def test_one_gap_says_little_about_the_dispersion(gap_s: float) -> None:
    """The gap is one pair of windows, however long."""
    world = World(1, Bounds(1, 20))
    world.runs(900, 4.0)
    before = world.state.load.arrivals.dispersion
    world.now_s += gap_s
    world.arrivals += 1.2 * gap_s * 4.0
    world.runs(2, 4.0)
    assert abs(world.state.load.arrivals.dispersion - before) < 0.2 * before


def test_reason_names_the_limits_of_variants() -> None:
    world = MixedWorld(slow=4, fast=0)
    world.runs(60, 17.0)
    limited = replace(world.rule, variants=(SLOW, FAST)).limited({"slow": 1, "fast": 1})
    decision, _ = limited.decide(OBJECTIVES, world.bounds, world.observation(), world.state)
    assert (decision.desired, decision.code) == (2, "Bounded")
    assert "bounded by the limits of the variants" in decision.reason


@pytest.mark.parametrize(
    ("limits", "replicas", "why"),
    [({}, 8, "maxReplicas 8"), ({"slow": 2, "fast": 2}, 4, "the limits of the variants")],
)
def test_variants_that_are_too_few_are_at_their_maximum(
    limits: dict[str, int], replicas: int, why: str
) -> None:
    world = MixedWorld(slow=2, fast=2)
    world.rule = world.rule.limited(limits)
    world.runs(300, 300.0)
    assert world.decision is not None
    assert (world.replicas, world.decision.code) == (replicas, "AtMaximum")
    assert world.decision.reason.endswith(f"bounded by {why}")


def test_limit_that_leaves_enough_adds_no_other_variant() -> None:
    """A limit leaves one of two fast replicas, which is enough."""
    world = MixedWorld(slow=0, fast=2)
    world.runs(60, 10.0)
    limited = replace(world.rule, variants=(SLOW, FAST)).limited({"fast": 1})
    decision, _ = limited.decide(OBJECTIVES, world.bounds, world.observation(), world.state)
    assert decision.by_variant == {"slow": 0, "fast": 1}


@pytest.mark.parametrize("blind_s", [2, 60, 600])
def test_arrivals_count_while_no_engine_reports(blind_s: int) -> None:
    world = World(4, Bounds(1, 20))
    world.runs(1200, 20.0)
    before = world.state.forecast.now
    for _ in range(blind_s // 2):
        pods = world.observation().pods
        lost = tuple(replace(pod, reading=Missing(pod.name, "timeout")) for pod in pods)
        world.runs(2, 20.0, pods=lost)
    world.runs(2, 20.0)
    after = world.state.forecast.now
    assert (after.load, after.forecast) == pytest.approx((before.load, before.forecast), rel=0.02)


@pytest.mark.parametrize("busy_s", [0.0, 100.0])
def test_busy_time_that_went_back_or_stands_still_says_nothing(busy_s: float) -> None:
    """An engine that restarted unseen has counted more than before, in less time."""
    tokens = Histogram((1.0,), (3000, 0), 60.0)
    old = replace(engine(0.0, 3), steps=100, busy_s=100.0)
    new = replace(engine(0.0, 50), steps=400, busy_s=busy_s, itl_s=tokens)
    assert window_between(old, new, 1000.0, 2000.0) is None


def test_scale_up_delay_starts_again_after_another_scale_up() -> None:
    """A raised minReplicas may add replicas during the delay."""
    delay, _ = ScaleUpDelay().delay(3, current=2, now_s=0.0, delay_s=5.0)
    delay, entry = delay.delay(6, current=5, now_s=6.0, delay_s=5.0)
    assert (entry.step, entry.replicas) == ("delay", 5)
    assert delay.delay(6, current=5, now_s=12.0, delay_s=5.0)[1].replicas == 6


def test_requests_that_ended_in_time_after_a_wait_excuse_no_others() -> None:
    """A hundred waited for the first replica, and were served soon enough."""
    waited = Outcomes().updated(1.0, Outcomes(waiting=100.0), is_served=False)
    served = waited.updated(1.0, Outcomes(requests=97.0, waiting=3.0), is_served=True)
    later = served.updated(1.0, Outcomes(requests=50.0, late=50.0, waiting=3.0), is_served=True)
    assert (later.requests, later.late) == (144.0, 47.0)
