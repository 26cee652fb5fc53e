"""Dispersion of a canary's intervals, against NumPy and SciPy: an independent implementation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from penstock.core.canary.dispersion import (
    CAUTION,
    LASTING_SHRINKAGE,
    MIN_BATCHES,
    SCALES,
    SHRINKAGE,
    TIMEOUT_Z,
    Dispersion,
    student_t,
)


def spread_of(seed, n, *, autocorrelation=0.0):
    """(Dispersion, weights, differences) of n intervals with this lag-one autocorrelation."""
    draw = np.random.default_rng(seed)
    weights, values = draw.uniform(1, 9, n), draw.normal(0.1, 1, n)
    for index in range(1, n):
        values[index] = (
            autocorrelation * values[index - 1] + math.sqrt(1 - autocorrelation**2) * values[index]
        )
    spread = Dispersion()
    for weight, value in zip(weights, values, strict=True):
        spread = spread.add(float(weight), float(value))
    return spread, weights, values


def batched(weights, values, scale):
    """Weights and weighted means of whole batches of so many intervals."""
    n = len(values) // scale * scale
    w = weights[:n].reshape(-1, scale)
    return w.sum(1), (w * values[:n].reshape(-1, scale)).sum(1) / w.sum(1)


def variance_of(weights, values):
    """Unbiased, of a value of weight 1."""
    mean = np.average(values, weights=weights)
    return float((weights * (values - mean) ** 2).sum() / (len(values) - 1))


@pytest.mark.parametrize("n", [2, 12, 37, 200])
def test_the_variance_of_batches_is_the_unbiased_weighted_one(n):
    spread, weights, values = spread_of(n, n)
    assert spread.n == n
    assert spread.weight == pytest.approx(weights.sum())
    assert spread.mean == pytest.approx(np.average(values, weights=weights))
    assert spread.variance == pytest.approx(variance_of(weights, values))
    for batches, scale in zip(spread.scales, SCALES, strict=True):
        w, v = batched(weights, values, scale)
        assert batches.n == len(v)
        if len(v) > 1:
            assert batches.variance == pytest.approx(variance_of(w, v))


def shrink_excess(ratio, noise):
    """Shrunk excess of a variance ratio over 1: excess^3 / (excess^2 + noise)."""
    excess = ratio - 1
    return excess**3 / (excess**2 + noise) if excess > 0 else 0.0


@pytest.mark.parametrize("kurtosis", [0.0, 3.0])
@pytest.mark.parametrize("autocorrelation", [0.0, 0.7])
@pytest.mark.parametrize("n", [5, 6, 40, 150])
def test_the_design_effect_is_that_of_the_scale_that_varies_most(n, autocorrelation, kurtosis):
    spread, weights, values = spread_of(n + 7, n, autocorrelation=autocorrelation)
    excesses, lasting_factor = [0.0], [0.0]
    for scale in SCALES:
        w, v = batched(weights, values, scale)
        if len(v) < MIN_BATCHES:
            continue
        # The variance of a sample variance, as a share: (2 + excess kurtosis) / (n - 1).
        noise = (2 + kurtosis / scale) / (len(v) - 1)
        excesses.append(shrink_excess(variance_of(w, v) / 0.8, SHRINKAGE * noise))
        ratio = variance_of(w, v) / variance_of(weights, values)
        if scale > 1:
            lasting_factor.append(shrink_excess(ratio, LASTING_SHRINKAGE * 2 / (len(v) - 1)))
    assert spread.factor(0.8, kurtosis) == pytest.approx(1 + max(excesses) * (1 + CAUTION / n))
    assert spread.lasting_factor == pytest.approx(1 + max(lasting_factor))


def test_without_a_variance_there_is_no_design_effect():
    spread, *_ = spread_of(1, 40, autocorrelation=0.9)
    assert spread.factor(0.0) == spread.factor(-1.0) == 1.0
    same = Dispersion()
    for _ in range(40):
        same = same.add(1.0, 2.0)
    assert same.lasting_factor == 1.0


@given(st.integers(8, 500), st.floats(0.5, 3.0))
def test_students_quantile_is_that_of_scipy(degrees, z):
    assert student_t(z, degrees) == pytest.approx(
        stats.t.ppf(stats.norm.cdf(z), degrees), rel=0.01 * max(1, z * z / 4)
    )


@pytest.mark.parametrize(
    ("n", "scale"), [(12, 1), (24, 2), (47, 2), (100, 8), (192, 16), (400, 16)]
)
def test_the_last_margin_is_students_of_the_longest_batches(n, scale):
    spread, weights, values = spread_of(n, n, autocorrelation=0.5)
    w, v = batched(weights, values, scale)
    error = math.sqrt(variance_of(w, v) / weights.sum())
    expected = stats.t.ppf(0.975, len(v) - 1) * error
    assert spread.timeout_margin() == pytest.approx(expected, rel=0.002)
    # A variance of the mean that is known to be larger stands.
    known = spread.timeout_margin(least_variance=4 * error**2)
    assert known == pytest.approx(2 * spread.timeout_margin())
    assert pytest.approx(stats.norm.ppf(0.975)) == TIMEOUT_Z
