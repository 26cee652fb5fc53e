"""Forecasts one start-up ahead, and their margin from the errors of earlier forecasts."""

import math
import random
from collections.abc import Callable
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.by_objectives.arrivals import PRIOR_DISPERSION
from penstock.core.scaling.by_objectives.forecast import (
    MEMORY_S,
    PRIOR_DRIFT,
    WARM_UP_S,
    Forecast,
)

LEAD_S, NOISE, PERIOD_S = 100.0, 0.05, 2.0
LOSS = 0.02
Load = Callable[[float], float]


def forecast_of(load: Load, seconds: float, expected: Load | None = None) -> Forecast:
    """The forecast after a load was observed every two seconds. expected: else the load of now."""
    forecast = Forecast()
    for n in range(1, round(seconds / PERIOD_S) + 1):
        now_s = n * PERIOD_S
        level = (expected or load)(now_s)
        forecast = forecast.updated(now_s, load(now_s), level, lead_s=LEAD_S)
    return forecast


def upper(forecast: Forecast, loss: float = LOSS) -> float:
    return forecast.upper(loss, lead_s=LEAD_S, noise=NOISE)


def bursts(share: float, height: float, every_s: float = 600.0) -> Load:
    """A load of 2, and of `height` more for a share of each interval."""
    return lambda now_s: 2.0 + height * (now_s % every_s < share * every_s)


def burst_forecast(share: float, height: float, seconds: float) -> Forecast:
    """The forecast of bursts by their mean."""
    return forecast_of(bursts(share, height), seconds, lambda _: 2.0 + share * height)


@pytest.mark.parametrize("level", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("loss", [0.1, 0.02, 0.005])
def test_first_margin_is_that_of_the_prior(level: float, loss: float) -> None:
    """At most `loss` of a normal load around the forecast, with the prior's spread, is beyond the bound.

    Between two deviations the margin is a little larger than necessary.
    """
    forecast = Forecast().updated(0.0, 1.5, level, lead_s=LEAD_S)
    drift = PRIOR_DRIFT * level * math.sqrt(LEAD_S)
    spread = math.hypot(math.sqrt(PRIOR_DISPERSION * NOISE * level), drift)
    quantiles = NormalDist(level, spread).quantiles(10_000)
    margin = upper(forecast, loss)
    beyond = sum(max(0.0, each - margin) for each in quantiles) / len(quantiles) / level
    assert forecast.now.forecast == level
    assert beyond <= 1.01 * loss
    assert beyond > 0.5 * loss or margin == level


@pytest.mark.parametrize("level", [0.3, 3.0, 30.0])
def test_margin_of_a_steady_load_goes_as_errors_are_measured(level: float) -> None:
    margins = [
        upper(forecast_of(lambda _: level, seconds)) - level for seconds in (60, 600, 3600, 7200)
    ]
    assert margins == sorted(margins, reverse=True)
    assert margins[0] > 0
    assert margins[-1] < 0.2 * margins[0]


@pytest.mark.parametrize(
    ("share", "height", "is_covered"), [(0.05, 4.0, True), (0.01, 2.0, False), (0.005, 4.0, False)]
)
def test_margin_covers_bursts_that_are_more_of_the_load_than_may_be_lost(
    share: float, height: float, is_covered: bool
) -> None:
    """The load beyond the margin is the allowed loss, counted by hand over whole intervals."""
    margin = upper(burst_forecast(share, height, 7200 - 60))
    lost = share * (2.0 + height - margin) / (2.0 + share * height)
    if is_covered:
        assert lost == pytest.approx(LOSS, rel=0.2)
        assert margin > 4.0
    else:
        assert lost < LOSS
        assert margin < 2.2


def test_margin_grows_as_less_may_be_lost() -> None:
    forecast = burst_forecast(0.05, 4.0, 3600)
    margins = [upper(forecast, loss) for loss in (0.5, 0.1, 0.05, 0.02, 0.01, 0.001)]
    assert margins == sorted(margins)
    assert margins[0] == forecast.now.forecast
    assert margins[-1] > 5.5


def test_margin_of_independent_noise() -> None:
    """The error of a forecast by the mean is the noise itself."""
    draw = random.Random(1)
    noise = [max(0.0, draw.gauss(3.0, 1.0)) for _ in range(3601)]
    forecast = forecast_of(lambda now_s: noise[round(now_s / PERIOD_S)], 7200, lambda _: 3.0)
    # A normal load around 3 with deviation 1 is beyond 3 + 0.91 for 2% of itself.
    assert upper(forecast) == pytest.approx(4.15, abs=0.25)


def test_errors_are_those_of_the_forecast_of_one_start_up_before() -> None:
    """A step by 4 after 1000 s was not forecast for just as long as a pod takes to start."""
    watched_s = [forecast_of(lambda t: 2.0 + 4.0 * (t > 1000), at).errors for at in (1000, 1100)]
    before, after = (errors.beyond[0] * errors.watched_s for errors in watched_s)
    assert before == pytest.approx(0.0, abs=1e-6)
    assert after == pytest.approx(4.0 * LEAD_S, rel=0.05)


def test_first_seconds_and_the_first_start_up_are_not_judged() -> None:
    assert forecast_of(lambda _: 3.0, LEAD_S + WARM_UP_S).errors.watched_s == 0
    later = forecast_of(lambda _: 3.0, LEAD_S + WARM_UP_S + 60).errors.watched_s
    assert later == pytest.approx(60, abs=3 * PERIOD_S)


def test_forecast_for_another_time_is_not_judged() -> None:
    """A start-up that took much longer than expected: no forecast was made for so long ahead."""
    forecast, longer_s = forecast_of(lambda _: 3.0, 600), 3 * LEAD_S
    watched_s = forecast.errors.watched_s
    for n in range(1, 10):
        forecast = forecast.updated(600 + PERIOD_S * n, 9.0, 3.0, lead_s=longer_s)
    assert watched_s > 0
    assert forecast.errors.watched_s == watched_s


def test_peak_is_remembered_and_fades() -> None:
    """exp(-1/2) of it is left after half of the memory; a lower load counts when that is less."""

    def load(now_s: float) -> float:
        return 8.0 if 1000 < now_s <= 1100 else 1.0

    assert forecast_of(load, 1100).errors.peak == 8
    assert forecast_of(load, 1100 + MEMORY_S / 2).errors.peak == pytest.approx(
        8 * math.exp(-0.5), rel=0.01
    )


def test_errors_are_forgotten_after_their_memory() -> None:
    forecast = forecast_of(lambda now_s: 2.0 + 8.0 * (now_s < 1000), 3 * MEMORY_S)
    assert forecast.errors.watched_s == MEMORY_S
    assert upper(forecast) < 2.1


def test_history_is_bounded() -> None:
    forecast = forecast_of(lambda _: 1.0, 3600)
    assert len(forecast.history) <= LEAD_S / PERIOD_S + 3


@given(
    loads=st.lists(st.floats(0.1, 50.0), min_size=100, max_size=200), factor=st.floats(0.25, 4.0)
)
def test_scaled_forecast_is_scaled_throughout(loads: list[float], factor: float) -> None:
    """The level, its history and the errors so far. Deviations are in roots, so the margin grows slower."""
    forecast = forecast_of(lambda now_s: loads[round(now_s / PERIOD_S) % len(loads)], 400)
    scaled = forecast.scaled(factor)
    assert scaled.now.forecast == pytest.approx(factor * forecast.now.forecast)
    assert [m.load for m in scaled.history] == pytest.approx(
        [factor * m.load for m in forecast.history]
    )
    assert scaled.errors.peak == pytest.approx(factor * forecast.errors.peak)
    assert scaled.errors.watched_s == forecast.errors.watched_s
    assert scaled.errors.beyond == pytest.approx([factor * b for b in forecast.errors.beyond])
    more, less = max(factor, 1.0), min(factor, 1.0)
    assert less * upper(forecast) * 0.99 <= upper(scaled) <= more * upper(forecast) * 1.01
    assert upper(forecast.scaled(1.0)) == upper(forecast)


def test_new_forecast_goes_on_from_the_errors_of_an_earlier_one() -> None:
    """Another operator has a margin for bursts from its first observation on."""
    before = burst_forecast(0.05, 4.0, 3600)
    anew = Forecast(errors=before.errors)
    for now_s in (9e6, 9e6 + PERIOD_S):
        anew = anew.updated(now_s, 2.0, 2.0, lead_s=LEAD_S)
    assert anew.since_s == 9e6
    assert anew.errors == before.errors
    margin = upper(before) - before.now.forecast
    assert upper(anew) == pytest.approx(2.0 + margin, rel=0.1)
