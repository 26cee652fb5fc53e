"""Exponential means of a rate, and what they expect of the future."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.by_objectives.smoothing import (
    FORECASTERS,
    MAX_TREND,
    TIME_CONSTANTS_S,
    Means,
    time_constant_s,
)

MEANS, TRENDS = FORECASTERS[::2], FORECASTERS[1::2]


def smoothed(rates: list[float], gaps_s: list[float]) -> Means:
    means, age_s = Means(), 0.0
    for rate, gap_s in zip(rates, gaps_s, strict=True):
        age_s += gap_s
        means = means.after(rate, gap_s, age_s)
    return means


@given(
    rate=st.floats(0.0, 1e6),
    gaps_s=st.lists(st.floats(0.1, 300.0), min_size=1, max_size=40),
    lead_s=st.floats(1.0, 1000.0),
)
def test_forecast_of_a_constant_is_the_constant_at_any_intervals(
    rate: float, gaps_s: list[float], lead_s: float
) -> None:
    means = smoothed([rate] * len(gaps_s), gaps_s)
    for forecaster in FORECASTERS:
        assert means.ahead(forecaster, lead_s) == pytest.approx(rate)


@given(
    rates=st.lists(st.floats(0.0, 1e3), min_size=1, max_size=20),
    parts=st.integers(1, 5),
    gap_s=st.floats(0.5, 60.0),
)
def test_interval_in_parts_gives_the_same_mean(
    rates: list[float], parts: int, gap_s: float
) -> None:
    whole = smoothed(rates, [gap_s] * len(rates))
    each = [rate for rate in rates for _ in range(parts)]
    split = smoothed(each, [gap_s / parts] * len(each))
    for forecaster in MEANS:
        assert split.ahead(forecaster, 1.0) == pytest.approx(
            whole.ahead(forecaster, 1.0), rel=1e-6, abs=1e-6
        )


def test_short_history_counts_in_equal_parts() -> None:
    """A mean over more than there was is the plain mean of what there was."""
    means = smoothed([1.0, 2.0, 6.0], [1.0, 1.0, 1.0])
    longest = 2 * (len(TIME_CONSTANTS_S) - 1)
    assert means.ahead(longest, 100.0) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("constant_s", TIME_CONSTANTS_S)
def test_mean_covers_63_percent_of_a_step_within_its_time_constant(constant_s: float) -> None:
    forecaster = next(f for f in MEANS if time_constant_s(f) == constant_s)
    before, after = 10 * round(constant_s), round(constant_s)
    means = smoothed([1.0] * before + [2.0] * after, [1.0] * (before + after))
    assert means.ahead(forecaster, 100.0) == pytest.approx(1.632, abs=0.001)


@pytest.mark.parametrize("slope", [0.01, -0.005])
@pytest.mark.parametrize("forecaster", [f for f in TRENDS if time_constant_s(f) <= 90])
def test_trend_goes_on_with_a_ramp_and_the_mean_lags_behind(forecaster: int, slope: float) -> None:
    lead_s, ends_s = 60.0, 1000
    means = smoothed([10 + slope * t for t in range(1, ends_s + 1)], [1.0] * ends_s)
    expected = 10 + slope * (ends_s + lead_s)
    by_trend, by_mean = means.ahead(forecaster, lead_s), means.ahead(forecaster - 1, lead_s)
    assert by_trend == pytest.approx(expected, rel=0.01)
    assert abs(by_mean - expected) > 20 * abs(by_trend - expected)


@given(
    rates=st.lists(st.floats(0.0, 1e4), min_size=1, max_size=40),
    lead_s=st.floats(1.0, 1e4),
)
def test_trend_is_bounded_by_the_mean(rates: list[float], lead_s: float) -> None:
    means = smoothed(rates, [2.0] * len(rates))
    for forecaster in TRENDS:
        mean, trend = means.ahead(forecaster - 1, lead_s), means.ahead(forecaster, lead_s)
        assert mean / MAX_TREND <= trend <= MAX_TREND * mean


def test_bounds_of_a_trend_are_reached() -> None:
    up = smoothed([1.0] * 100 + [9.0] * 10, [2.0] * 110)
    down = smoothed([9.0] * 100 + [0.0] * 10, [2.0] * 110)
    for means, factor in ((up, MAX_TREND), (down, 1 / MAX_TREND)):
        assert means.ahead(3, 1000.0) == pytest.approx(factor * means.ahead(2, 1000.0))


@given(rates=st.lists(st.floats(0.0, 1e3), min_size=1, max_size=20), factor=st.floats(0.1, 10.0))
def test_scaled_means_are_those_of_scaled_rates(rates: list[float], factor: float) -> None:
    gaps_s = [2.0] * len(rates)
    scaled = smoothed(rates, gaps_s).scaled(factor)
    anew = smoothed([factor * rate for rate in rates], gaps_s)
    for forecaster in FORECASTERS:
        assert scaled.ahead(forecaster, 60.0) == pytest.approx(anew.ahead(forecaster, 60.0))
