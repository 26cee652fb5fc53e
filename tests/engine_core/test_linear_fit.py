"""Tests of LinearFit against numpy's weighted least squares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.linear_fit import DECAY, LinearFit

Points = list[tuple[float, float]]


def fit_of(points: Points) -> LinearFit:
    fit = LinearFit()
    for x, y in points:
        fit.add(x, y)
    return fit


def polyfit(points: Points) -> tuple[float, float]:
    """Returns constant and slope. An observation's weight is DECAY to the power of its age."""
    x, y = np.array(points).T
    # polyfit squares its weights.
    weights = np.sqrt(DECAY ** np.arange(len(points))[::-1])
    slope, fixed = np.polyfit(x, y, 1, w=weights)
    return fixed, slope


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=2, max_size=30),
    st.integers(1, 5),
    st.integers(100, 200),
)
def test_a_rising_line_equals_weighted_least_squares(
    noisy: list[tuple[int, int]], slope: int, fixed: int
) -> None:
    points = [
        (float(x), (fixed + slope * x + noise / 25) / 10_000)  # seconds, as steps take
        for x, noise in [*noisy, (0, 0), (99, 0)]
    ]
    assert fit_of(points).fit() == pytest.approx(polyfit(points), rel=1e-6)


def test_an_older_observation_counts_less() -> None:
    """The same points in another order give another line."""
    points: Points = [(1.0, 10.0), (2.0, 11.0), (3.0, 14.0)]
    assert fit_of(points).fit() == pytest.approx(polyfit(points), rel=1e-9)
    assert fit_of(points[::-1]).fit() == pytest.approx(polyfit(points[::-1]), rel=1e-9)
    assert polyfit(points) != pytest.approx(polyfit(points[::-1]), rel=1e-4)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(5.0, 1.0)],
        [(5.0, 1.0), (5.0, 3.0), (5.0, 2.0)],  # all x are the same
        [(1.0, 0.0), (2.0, 0.0)],  # all durations are zero
        [(1000.0, 1.0), (1000.5, 1.0)],  # the spread of x is too small
    ],
)
def test_no_line_without_a_spread_or_a_duration(points: Points) -> None:
    assert fit_of(points).fit() is None


def test_a_falling_line_becomes_level_at_the_mean() -> None:
    points: Points = [(1.0, 3.0), (2.0, 1.0)]
    mean = (3.0 * DECAY + 1.0) / (DECAY + 1)
    assert fit_of(points).fit() == pytest.approx((mean, 0.0))


def test_a_line_with_a_negative_constant_goes_through_zero() -> None:
    """The slope is that of least squares without a constant."""
    points: Points = [(1.0, 1.0), (2.0, 4.0)]
    slope = (1.0 * DECAY + 8.0) / (1.0 * DECAY + 4.0)
    assert fit_of(points).fit() == pytest.approx((0.0, slope))


@pytest.mark.parametrize(("spread", "has_line"), [(0.0021, True), (0.0019, False)])
def test_x_must_vary_by_a_thousandth(spread: float, has_line: bool) -> None:
    """The variance of x over its mean square must exceed 1e-6."""
    fit = fit_of([(1.0, 1.0), (1.0 + spread, 2.0)]).fit()
    assert (fit is not None) == has_line
