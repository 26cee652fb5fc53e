"""The level of arrivals, and how far it may be exceeded."""

import random

import pytest

from penstock.core.scaling.by_objectives.demand import Demand

REQUEST_S = 0.5


def watched(rates: list[tuple[float, float]], seed: int, period_s: float = 2.0) -> Demand:
    """rates: (for so many seconds, requests/s), Poisson arrivals."""
    draw = random.Random(seed)
    demand, now_s = Demand(), 0.0
    for duration_s, rate in rates:
        for _ in range(round(duration_s / period_s)):
            now_s += period_s
            arrivals = sum(1 for _ in range(1000) if draw.random() < rate * period_s / 1000)
            demand = demand.after(now_s, arrivals * REQUEST_S, REQUEST_S)
    return demand


@pytest.mark.parametrize("seed", range(10))
def test_a_calm_level_is_the_mean(seed: int) -> None:
    assert watched([(600, 4.0)], seed).level == pytest.approx(4.0 * REQUEST_S, rel=0.15)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("before", "after"), [(4.0, 8.0), (10.0, 4.0)])
def test_a_step_is_seen_within_a_minute(before: float, after: float, seed: int) -> None:
    level = watched([(600, before), (60, after)], seed).level
    assert level == pytest.approx(after * REQUEST_S, rel=0.35)


def test_more_is_provided_for_after_surprises() -> None:
    calm = watched([(3600, 4.0)], 1)
    wild = watched([(300, 2.0), (300, 8.0)] * 6, 1)
    assert wild.headroom(120, 0.01, REQUEST_S) > 1.1 * calm.headroom(120, 0.01, REQUEST_S)


def test_a_level_is_believed_to_move_before_it_was_watched() -> None:
    """A minute of data says little about the next ten."""
    seen = watched([(60, 40.0)], 4)
    near, far = (seen.headroom(h, 0.01, REQUEST_S) for h in (20.0, 600.0))
    assert far > near + 0.05


def test_the_first_minute_is_no_surprise() -> None:
    """A new service gets no requests at first, then its whole load at once."""
    quiet = watched([(40, 0.1), (1200, 4.0)], 1)
    assert quiet.headroom(120, 0.01, REQUEST_S) < 1.35


@pytest.mark.parametrize("horizon_s", [5, 20, 120, 600])
def test_less_may_be_lost_with_more_headroom(horizon_s: float) -> None:
    seen = watched([(900, 4.0), (300, 6.0)], 2)
    needed = [seen.headroom(horizon_s, loss, REQUEST_S) for loss in (0.001, 0.01, 0.1)]
    assert needed == sorted(needed, reverse=True)


def test_history_is_bounded() -> None:
    assert len(watched([(3600, 1.0)], 1).history) < 400


def test_only_in_the_first_minute_is_the_level_less_than_sure() -> None:
    """The fewer came, the less: 1 of 1, or 4 of 5, may be one deviation above what is to be expected."""
    shares = [
        watched([(seconds, 4.0)], 1).sure_share(seconds, REQUEST_S) for seconds in (4, 20, 50)
    ]
    assert 0 < shares[0] < shares[1] < shares[2] < 1
    assert watched([(70, 4.0)], 1).sure_share(70, REQUEST_S) == 1


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_what_is_learned_of_requests_in_the_first_minute_holds_for_those_that_came(
    factor: float,
) -> None:
    young, old = watched([(30, 4.0)], 1), watched([(90, 4.0)], 1)
    restated = young.restated(32, factor)
    assert restated.level == pytest.approx(factor * young.level)
    again = restated.after(32, 8 * factor * REQUEST_S, factor * REQUEST_S)
    alike = young.after(32, 8 * REQUEST_S, REQUEST_S)
    assert again.level == pytest.approx(factor * alike.level)
    assert old.restated(92, factor) == old
