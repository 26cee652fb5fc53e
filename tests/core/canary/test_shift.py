"""Latency shift and its e-values, against NumPy and SciPy: an independent implementation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from penstock.core.canary.compared_metrics import QUEUE_TOLERANCES
from penstock.core.canary.dispersion import Dispersion
from penstock.core.canary.estimate import MULTIPLES, PRIOR, Estimate
from penstock.core.canary.judge import evaluate_tests, judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.moments import Moments
from penstock.core.canary.shift import (
    MAX_DESIGN_EFFECT,
    MIN_INTERVALS,
    PRIOR_INTERVALS,
    UNCORRELATED,
    VARIANCE_PRIOR,
    ArmMoments,
    Shift,
)
from penstock.core.canary.verdict import Accept
from penstock.core.spec.canary import CanarySpec

SCALE = math.log(1.1)


def sides_of(seed, intervals=40, canary_n=6, control_n=30):
    """Canary's and control's values of each interval; all intervals close at once."""
    draw = np.random.default_rng(seed)
    return [(draw.normal(0.3, 1.5, canary_n), draw.normal(0.0, 0.7, control_n))
            for _ in range(intervals)]  # fmt: skip


def test_the_variance_of_a_side_is_the_pooled_one_within_intervals():
    """Each interval costs one degree of freedom."""
    side, samples = ArmMoments(), [canary for canary, _ in sides_of(3, canary_n=5)]
    for values in samples:
        side = side.add(Moments.of(values), 4.0, 1.5)
    pooled = sum(np.var(v, ddof=1) * (len(v) - 1) for v in samples) / (4 * len(samples))
    assert (side.n, side.degrees) == (5 * len(samples), 4 * len(samples))
    assert side.variance(9.0, 0.0) == pytest.approx(pooled)
    # The prior adds ten pseudo-requests with a variance of 9.
    assert side.variance(9.0, 10.0) == pytest.approx(
        (pooled * side.degrees + 90.0) / (side.degrees + 10)
    )
    assert ArmMoments().variance(9.0, 0.0) == 9.0
    assert side.noise == pytest.approx(len(samples) * 16.0 / 5)
    assert side.design_effect == pytest.approx(1 + 2 * 1.5)
    assert ArmMoments().add(Moments.of(samples[0]), 1.0, 100.0).design_effect == MAX_DESIGN_EFFECT


@pytest.mark.parametrize("queued", [0.0, 2.0])
@pytest.mark.parametrize("assumed", [0.0, PRIOR_INTERVALS])
def test_an_estimate_is_the_weighted_mean_of_differences(assumed, queued):
    state, samples = Shift(assumed=assumed), sides_of(5)
    for canary, control in samples:
        state = state.add(10.0, (Moments.of(canary),), (Moments.of(control),), (queued,))
    estimate = state.estimate()
    differences = np.array([canary.mean() - control.mean() for canary, control in samples])
    weight, n = 1 / (1 / 6 + 1 / 30), len(samples)
    assert estimate.difference == pytest.approx(differences.mean())
    assert (estimate.canary_n, estimate.control_n) == (6 * n, 30 * n)
    assert estimate.degrees == assumed + n - 1
    # The prior's variance is that within the intervals, for requests that are correlated.
    control_variance = np.mean([np.var(control, ddof=1) for _, control in samples])
    within = np.mean([np.var(canary, ddof=1) for canary, _ in samples])
    canary_variance = (within * 5 * n + VARIANCE_PRIOR * control_variance) / (
        5 * n + VARIANCE_PRIOR
    )
    design_effect = 1 + 2 * queued
    expected = design_effect * weight * (canary_variance / 6 + control_variance / 30)
    shown = weight * np.var(differences, ddof=1)
    variance = (assumed * expected + (n - 1) * shown) / estimate.degrees
    information = n * weight / (variance * state.dispersion.lasting_factor)
    assert estimate.information == pytest.approx(information)


def test_an_estimate_needs_intervals_and_a_variance():
    state, same = Shift(), Shift()
    for index, (canary, control) in enumerate(sides_of(6, intervals=MIN_INTERVALS)):
        assert state.estimate().information == 0, index
        state = state.add(10.0, (Moments.of(canary),), (Moments.of(control),), UNCORRELATED)
        still = Moments.of([1.0] * 20)
        same = same.add(10.0, (still,), (still,), UNCORRELATED)
    assert state.estimate().information > 0
    assert same.estimate().information == 0


@pytest.mark.parametrize("degrees", [9.0, 39.0, 1e7])
@pytest.mark.parametrize("x", [-0.1, 0.05, 0.3])
def test_an_e_value_is_a_ratio_of_students_densities(x, degrees):
    information = 400.0
    estimate = Estimate(x, information, degrees, 100, 100)
    error = 1 / math.sqrt(information)

    def density(shift):
        return stats.t.pdf((x - shift) / error, degrees)

    for margin in (0.0, SCALE):
        expected = sum(
            p * density(margin + m * SCALE) / density(margin)
            for p, m in zip(PRIOR, MULTIPLES, strict=True)
        )
        assert estimate.e_value(SCALE, margin) == pytest.approx(expected, rel=1e-6)
    mirrored = replace(estimate, difference=-x)
    assert estimate.two_sided_e_value(SCALE, SCALE) == pytest.approx(
        (estimate.e_value(SCALE, SCALE) + mirrored.e_value(SCALE, SCALE)) / 2
    )


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("information", [30.0, 300.0, 30_000.0])
def test_a_radius_is_where_a_mixture_of_normal_bets_wins(information, alpha):
    """The radius is where the mixture likelihood ratio reaches 1 / (2 alpha), by numerical integration.

    The mixture has a normal prior with standard deviation SCALE. Few degrees of freedom widen it.
    """
    wide = Estimate(0.0, information, 1e9, 1, 1).radius(SCALE, alpha)

    def likelihood_ratio(shift):
        log = information * (wide * shift - shift * shift / 2)
        return math.exp(log) * stats.norm.pdf(shift, scale=SCALE)

    posterior_mean = wide * information / (information + SCALE**-2)
    width = 12 / math.sqrt(information)
    won, _ = integrate.quad(
        likelihood_ratio, posterior_mean - width, posterior_mean + width, epsrel=1e-10, limit=200
    )
    assert won == pytest.approx(1 / (2 * alpha), rel=1e-5)
    few = Estimate(0.0, information, 9.0, 1, 1).radius(SCALE, alpha)
    assert few > wide


@pytest.mark.parametrize(("bound", "is_within"), [(0.999, True), (1.001, False)])
@pytest.mark.parametrize("tolerance", [0.02, 0.10, 0.30])
def test_a_latency_is_within_tolerance_where_its_upper_bound_is(make, tolerance, bound, is_within):
    """The state is a real one, of which each difference is moved by what makes it so."""
    spec = CanarySpec(latency_tolerance=tolerance)
    state = JudgeState.begin(spec)
    for block in make.blocks(200, seed=1):
        verdict, state = judge(spec, state, block)
        if isinstance(verdict, Accept):
            break
    scales = {"TTFT": 1.0, "TTFT with queues": QUEUE_TOLERANCES, "TPOT": 1.0}
    moved = {}
    for metric, name in zip(scales, ("ttft", "overall", "tpot"), strict=True):
        shift = getattr(state, name)
        scale = scales[metric] * spec.log_tolerance
        estimate = shift.estimate()
        target = bound * scale - estimate.radius(scale, spec.alpha)
        by = target - estimate.difference
        finest, *coarse = shift.dispersion.scales
        # All differences by the same: the mean moves, the variance stays.
        squares = finest.squares + 2 * by * finest.total + by * by * finest.weight
        total = finest.total + by * finest.weight
        scales_moved = (replace(finest, total=total, squares=squares), *coarse)
        moved[name] = replace(shift, dispersion=Dispersion(scales_moved))
    found = {
        finding.test.metric: finding for finding in evaluate_tests(spec, replace(state, **moved))
    }
    assert {found[metric].is_within for metric in scales} == {is_within}
