"""The rule over variants: counts of each variant on the way to the chosen mix."""

import math
from typing import Any

import pytest
from tests.core.scaling.by_objectives.world import OBJECTIVES, World

from penstock.core.engine_time.iteration import Fit, IterationModel
from penstock.core.scaling.by_objectives.need import Need, ShownUnit
from penstock.core.scaling.learned.capacity import Capacity, Mix
from penstock.core.scaling.learned.footprint import Footprint
from penstock.core.scaling.learned.startup import StartUp
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.recording import Recording
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.variants.mixed import (
    LearnedVariant,
    MixedNeed,
    Variant,
    iteration_models,
)

PRIOR = IterationModel(0.05, 3e-4, 1e-4, 1e-7)
CHEAP = Variant("cheap", PRIOR, 2.5, 0, 8)
STRONG = Variant("strong", PRIOR.times(0.5), 4.0, 0, 8)


def footprint(replicas: float) -> Footprint:
    """Footprint of one answer per second that keeps so many replicas busy."""
    return Footprint(
        Capacity(1.0, 1.0, "TPOT", 0.9), prompt_token=0.0, answer=replicas, kv=0.0, batch=0.0,
        slack_s=1.0, stay_s=1.0, noise=0.1,
    )  # fmt: skip


def need(replicas: tuple[int, int], cheap: float, strong: float, most: int = 8) -> MixedNeed:
    """Need that so many replicas of either variant would hold alone."""
    made = MixedNeed(
        (CHEAP, STRONG),
        (footprint(cheap), footprint(strong)),
        unit=footprint(1.0),
        counts=dict(zip(("cheap", "strong"), replicas, strict=True)),
        bounds=Bounds(1, most),
        mix=Mix(1000, 1000, 100),
    )
    made.replicas(1.0)
    return made


@pytest.mark.parametrize(
    ("replicas", "numbers", "total", "counts"),
    [
        ((1, 0), (2.0, 1.0), 2, (1, 1)),  # in the end 4 an hour, not 5
        ((1, 0), (2.6, 1.3), 2, (1, 1)),
        ((1, 0), (4.0, 2.0), 2, (1, 1)),  # of so few, those that take most
        ((1, 0), (6.0, 4.0), 2, (2, 0)),  # on the way to 6 cheap, though strong ones take more
        ((1, 1), (2.0, 1.0), 2, (1, 1)),
        ((1, 1), (2.0, 1.0), 1, (0, 1)),  # fewer: the dearest that it can do without
        ((2, 2), (2.0, 1.0), 3, (1, 2)),
        ((0, 1), (1.8, 0.9), 2, (0, 1)),  # enough, though limits may have left fewer than before
        ((0, 0), (0.0, 0.0), 1, (1, 0)),
    ],
)
def test_counts(replicas, numbers, total, counts) -> None:
    assert need(replicas, *numbers).counts(total) == counts


@pytest.mark.parametrize(("total", "counts"), [(3, (1, 2)), (2, (0, 2)), (1, (0, 1)), (0, (0, 0))])
def test_fewer_than_the_need_takes_go_down_to_nothing(total: int, counts: tuple[int, int]) -> None:
    """A lowered bound may leave fewer replicas than one of each variant."""
    assert need((2, 2), 4.0, 2.0).counts(total) == counts


def test_a_decision_has_the_mix_and_its_price() -> None:
    made = need((1, 0), 2.6, 1.3)
    assert made.replicas(1.0) == (2, "1 cheap + 1 strong for 6.5 an hour")
    decision = made.decided(Decision(2, "", "ScaleUp"))
    assert decision.by_variant == {"cheap": 1, "strong": 1}
    assert decision.trail[-1].note == "1 cheap + 1 strong for 6.5 an hour"
    assert made.capacity_note.startswith("cheap, at most 8, each 2.5 an hour: a replica takes")
    assert "; strong, at most 8, each 4 an hour: a replica takes" in made.capacity_note


def test_a_swap_adds_first() -> None:
    made = need((2, 0), 1.9, 0.95)
    assert made.replicas(1.0)[0] == 2
    assert (made.replicas_with_swap(), made.counts(3)) == (3, (2, 1))
    assert made.swap_note.startswith("1 strong for 4 an hour would be enough")
    assert need((2, 0), 1.9, 0.95, most=2).replicas_with_swap() == 0


def test_a_need_is_a_multiple_of_the_unit() -> None:
    """Twice the unit's load takes twice the replicas of a variant."""
    made = need((0, 1), 1.0, 0.5)
    assert made.replicas(2.0) == (1, "1 strong for 4 an hour")
    assert made.replicas(4.0) == (2, "2 strong for 8 an hour")


def test_reasons_are_in_replicas_of_the_first_variant() -> None:
    """The unit is a measured replica, as the prior may be wrong by a factor of ten."""
    assert need((1, 0), 2.0, 1.0).first == ("cheap", 2.0)
    world = World(3, Bounds(1, 20))
    world.runs(600, 12.0)
    state = world.state
    footprint = world.rule._footprint(OBJECTIVES, state.traffic.mix, state)
    in_units = Need.of(state, footprint, loss=0.01, lead_s=100.0, unit=ShownUnit())
    shown = Need.of(state, footprint, loss=0.01, lead_s=100.0, unit=ShownUnit(10.0, "cheap"))
    assert shown.replicas == in_units.replicas
    load, ahead = (10 * each for each in (state.forecast.now.load, state.forecast.now.forecast))
    assert shown.forecast_note == (
        f"the load keeps {load:.2f} cheap busy, and {ahead:.2f} in 100 s by its forecast"
    )
    assert shown.note.endswith(f"need {math.ceil(1000 * in_units.replicas) / 100:.2f}")


def test_a_variant_that_has_not_run_is_corrected_by_the_error_of_the_others() -> None:
    ran = LearnedVariant(Watch(Fit(PRIOR.times(3.0), (), windows=9)), StartUp(60.0))
    known = {"cheap": ran, "strong": LearnedVariant.initial(STRONG, 60.0)}
    cheap, strong = iteration_models((CHEAP, STRONG), known)
    assert cheap == PRIOR.times(3.0)
    assert strong.terms == pytest.approx(PRIOR.times(1.5).terms)


@pytest.mark.parametrize("seed", range(3))
def test_recorded_decisions_come_again_and_are_within_bounds(
    live: Any, written: Any, seed: int
) -> None:
    ticks = list(live(seed, 90, mean_arrivals=20.0, losses=0.02, variants=(CHEAP, STRONG)))
    for tick in ticks:
        mix = tick.decision.by_variant
        assert sum(mix.values()) == tick.decision.desired <= 10
        assert all(0 <= count <= 8 for count in mix.values())
    assert len({tuple(tick.decision.by_variant.items()) for tick in ticks}) > 1
    again = Recording.read(written(ticks)).replay()
    assert [decision for _, decision in again] == [tick.decision for tick in ticks]
