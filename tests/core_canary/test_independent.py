"""The judge's statistics against NumPy, SciPy and closed forms: an independent implementation of each."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from penstock.core.canary import gates
from penstock.core.canary.counts import Counts
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
from penstock.core.canary.errors import MULTIPLES as ERROR_MULTIPLES
from penstock.core.canary.errors import PRIOR_REQUESTS, Errors
from penstock.core.canary.errors import STAKES as ERROR_STAKES
from penstock.core.canary.estimate import MULTIPLES, PRIOR, Estimate
from penstock.core.canary.evidence import Arm, Block
from penstock.core.canary.judge import QUEUE_TOLERANCES, begin, evaluate_tests, judge
from penstock.core.canary.moments import Moments
from penstock.core.canary.proportions import FRACTIONS, INTERVAL_S, ProportionStatistics
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
from penstock.core.canary.violations import BETS, LARGEST_LOSS, Violations
from penstock.core.canary.violations import MIN_INTERVALS as MIN_VIOLATION_INTERVALS
from penstock.core.canary.warmup import DECAY, MARGIN, MAX_WARMUP_S, WarmUp
from penstock.core.spec.canary import CanarySpec

SCALE = math.log(1.1)


def spread_of(seed, n, *, alike=0.0):
    """(Dispersion, weights, differences) of n intervals; each takes so much over from the one before."""
    draw = np.random.default_rng(seed)
    weights, values = draw.uniform(1, 9, n), draw.normal(0.1, 1, n)
    for index in range(1, n):
        values[index] = alike * values[index - 1] + math.sqrt(1 - alike**2) * values[index]
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


def believed(ratio, noise):
    """Shrunk excess of a variance ratio over 1: excess^3 / (excess^2 + noise)."""
    excess = ratio - 1
    return excess**3 / (excess**2 + noise) if excess > 0 else 0.0


@pytest.mark.parametrize("kurtosis", [0.0, 3.0])
@pytest.mark.parametrize("alike", [0.0, 0.7])
@pytest.mark.parametrize("n", [5, 6, 40, 150])
def test_the_design_effect_is_that_of_the_scale_that_varies_most(n, alike, kurtosis):
    spread, weights, values = spread_of(n + 7, n, alike=alike)
    excesses, lasting_factor = [0.0], [0.0]
    for scale in SCALES:
        w, v = batched(weights, values, scale)
        if len(v) < MIN_BATCHES:
            continue
        # The variance of a sample variance, as a share: (2 + excess kurtosis) / (n - 1).
        noise = (2 + kurtosis / scale) / (len(v) - 1)
        excesses.append(believed(variance_of(w, v) / 0.8, SHRINKAGE * noise))
        ratio = variance_of(w, v) / variance_of(weights, values)
        if scale > 1:
            lasting_factor.append(believed(ratio, LASTING_SHRINKAGE * 2 / (len(v) - 1)))
    assert spread.factor(0.8, kurtosis) == pytest.approx(1 + max(excesses) * (1 + CAUTION / n))
    assert spread.lasting_factor == pytest.approx(1 + max(lasting_factor))


def test_without_a_variance_there_is_no_design_effect():
    spread, *_ = spread_of(1, 40, alike=0.9)
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
    spread, weights, values = spread_of(n, n, alike=0.5)
    w, v = batched(weights, values, scale)
    error = math.sqrt(variance_of(w, v) / weights.sum())
    expected = stats.t.ppf(0.975, len(v) - 1) * error
    assert spread.timeout_margin() == pytest.approx(expected, rel=0.002)
    # A variance of the mean that is known to be larger stands.
    known = spread.timeout_margin(least_variance=4 * error**2)
    assert known == pytest.approx(2 * spread.timeout_margin())
    assert pytest.approx(stats.norm.ppf(0.975)) == TIMEOUT_Z


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


@pytest.mark.parametrize("in_line", [0.0, 2.0])
@pytest.mark.parametrize("assumed", [0.0, PRIOR_INTERVALS])
def test_an_estimate_is_the_weighted_mean_of_differences(assumed, in_line):
    state, samples = Shift(assumed=assumed), sides_of(5)
    for canary, control in samples:
        state = state.add(10.0, (Moments.of(canary),), (Moments.of(control),), (in_line,))
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
    alike = 1 + 2 * in_line
    expected = alike * weight * (canary_variance / 6 + control_variance / 30)
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
    spec = CanarySpec(tolerance=tolerance)
    state = begin(spec)
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
    found = {finding.metric: finding for finding in evaluate_tests(spec, replace(state, **moved))}
    assert {found[metric].is_within for metric in scales} == {is_within}


def tally_of(seed, intervals, *, share, cluster, canary_n=20, control_n=60):
    """Requests come in clusters of one fate: all of a cluster are events, or none is."""
    draw, tally = np.random.default_rng(seed), ProportionStatistics()
    for _ in range(intervals):
        canary, control = (
            cluster * int((draw.random(n // cluster) < share).sum()) for n in (canary_n, control_n)
        )
        tally = tally.add(INTERVAL_S, Counts(canary_n, canary), Counts(control_n, control))
    return tally


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
@pytest.mark.parametrize(("cluster", "low", "high"), [(1, 1.0, 1.2), (5, 3.5, 8.0)])
def test_the_design_effect_of_clusters_is_their_size(cluster, low, high, share):
    """At any share: events that come in fives are worth a fifth."""
    tallies = [tally_of(seed, 120, share=share, cluster=cluster) for seed in range(20)]
    assert low <= np.median([tally.dispersion for tally in tallies]) <= high


@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_the_dispersion_is_beside_the_binomial_variance(share):
    """Dispersion of a difference of shares; ten pseudo-requests shrink the canary's share."""
    tally = tally_of(1, 50, share=share, cluster=5)
    canary, control = tally.canary, tally.control
    both = (canary.events + control.events) / (canary.requests + control.requests)
    leaning = (canary.events + 10 * both) / (canary.requests + 10)
    # stats.bernoulli.var is p (1 - p); each side's counts by the requests of the other.
    variance = np.average(
        [stats.bernoulli.var(leaning), stats.bernoulli.var(both)],
        weights=[control.requests, canary.requests],
    )
    kurtosis = 50 / (leaning * canary.requests)
    assert tally.dispersion == pytest.approx(tally.spread.factor(float(variance), kurtosis))
    assert tally.spread.mean == pytest.approx(canary.share - control.share)


def test_a_tally_without_events_or_intervals_has_no_dispersion():
    assert ProportionStatistics().dispersion == 1.0
    assert tally_of(1, 20, share=0.0, cluster=1).dispersion == 1.0
    assert ProportionStatistics().add(1.0, Counts(5, 2), Counts(5, 1)).dispersion == 1.0


def test_what_is_refuted_is_a_mixture_of_poisson_likelihoods():
    tally = tally_of(4, 60, share=0.02, cluster=1)
    n, k, temper = tally.canary.requests, tally.canary.events, tally.dispersion
    for difference in (0.01, 0.03, 0.06):
        mean = n * (0.02 + difference)
        ratios = [
            (stats.poisson.pmf(k, part * mean) / stats.poisson.pmf(k, mean)) ** (1 / temper)
            for part in FRACTIONS
        ]
        odds = float(np.mean(ratios))
        assert tally.is_below(difference, 0.02, 1 / (0.99 * odds))
        assert not tally.is_below(difference, 0.02, 1 / (1.01 * odds))
    reading = tally.reading(0.02, 0.01)
    assert not tally.is_below(reading.high - 2e-6, 0.02, 0.01)
    assert tally.is_below(reading.high + 2e-6, 0.02, 0.01)
    assert reading.difference == tally.canary.share - tally.control.share


def test_the_last_bound_of_a_share_is_agresti_and_coulls():
    """Two events and two others more than there were."""
    tally = tally_of(5, 40, share=0.1, cluster=1)
    n, k = tally.canary.requests, tally.canary.events
    share = (k + 2) / (n + 4)
    assert tally.least_variance == pytest.approx(share * (1 - share) / (n + 4))
    margin = tally.spread.timeout_margin(tally.least_variance)
    assert tally.timeout_bound() == pytest.approx(share - tally.control.share + margin)


def test_bets_on_errors_are_binomial_likelihood_ratios():
    """Whose each error is, given how many there are: binomial, by the sides' requests."""
    draw, state = random.Random(2), Errors(0.01)
    logs = np.zeros(len(ERROR_MULTIPLES))
    for _ in range(20):
        canary, control = Counts(20, draw.randint(0, 2)), Counts(60, draw.randint(0, 2))
        seen = state.tally.control
        base = (seen.events + 0.5) / (seen.requests + PRIOR_REQUESTS)
        events, fair = canary.events + control.events, 20 / 80
        for index, multiple in enumerate(ERROR_MULTIPLES):
            odds = 20 * (base + multiple * 0.01) / base
            logs[index] += stats.binom.logpmf(canary.events, events, odds / (odds + 60))
            logs[index] -= stats.binom.logpmf(canary.events, events, fair)
        state = state.add(10.0, canary, control)
    expected = np.exp(logs / state.tally.dispersion) @ np.array(ERROR_STAKES)
    assert state.e_value() == pytest.approx(expected)


def halves(counts):
    """Split counts into two blocks that together make one interval."""
    first = Counts(counts.requests // 2, counts.events // 2)
    return first, Counts(counts.requests - first.requests, counts.events - first.events)


def test_bets_on_misses_multiply_by_interval():
    draw, state = random.Random(3), Violations(0.05)
    won = np.ones(len(BETS))
    for _ in range(20):
        canary, control = Counts(10, draw.randint(0, 10)), Counts(30, draw.randint(0, 9))
        difference = canary.events / 10 - control.events / 30
        won *= 1 + np.clip(np.array(BETS) * difference, -LARGEST_LOSS, LARGEST_LOSS)
        for sides in zip(halves(canary), halves(control), strict=True):
            state = state.add(INTERVAL_S / 2, *sides, (Moments(),) * 6, (Moments(),) * 6)
    assert state.e_value() == pytest.approx(won.mean())


@pytest.mark.parametrize("expected", [0.01, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("above", [1.2, 2.0, 5.0])
def test_the_poisson_tail_is_scipys_and_never_less(expected, above):
    events = math.ceil(expected * above) + 1
    exact = stats.poisson.sf(events - 1, expected)
    assert exact <= gates.poisson_tail(events, expected) <= min(1.0, 6 * exact)


def test_violations_are_judged_after_so_many_intervals():
    """If neither side has violations, only the number of intervals delays acceptance."""
    state = Violations(0.5)
    for index in range(MIN_VIOLATION_INTERVALS):
        assert not state.is_within(0.01), index
        state = state.add(
            INTERVAL_S, Counts(100, 0), Counts(900, 0), (Moments(),) * 6, (Moments(),) * 6
        )
    assert state.is_within(0.01)


def warmth(canary, control, blocks=1, length_s=10.0):
    state = WarmUp()
    for _ in range(blocks):
        state = state.add(Block(length_s=length_s, canary=canary, control=control))
    return state


@pytest.mark.parametrize(
    ("canary_cached", "is_over"), [(0, False), (399, False), (400, True), (1000, True)]
)
def test_a_cache_is_warm_within_a_margin_of_its_control(canary_cached, is_over):
    """The control finds half of its tokens cached."""
    control = Arm(requests=9, prompt_tokens=9000, cached_tokens=4500)
    canary = Arm(requests=1, prompt_tokens=1000, cached_tokens=canary_cached)
    assert MARGIN == 0.1
    assert warmth(canary, control).is_over is is_over


def test_a_cache_that_nothing_was_asked_of_is_cold():
    """Requests that failed before their prompt was counted."""
    control = Arm(requests=9, prompt_tokens=9000, cached_tokens=4500)
    state = warmth(Arm(requests=3), control, blocks=int(MAX_WARMUP_S / 10) - 1)
    assert state.canary.share == 0.0
    assert not state.is_over
    assert state.add(Block(length_s=10.0, canary=Arm(requests=3), control=control)).is_over
    # On both sides: nothing to wait for.
    assert warmth(Arm(requests=3), Arm(requests=9)).is_over


def test_old_hits_fade():
    control = Arm(requests=9, prompt_tokens=9000, cached_tokens=9000)
    cold = warmth(Arm(requests=1, prompt_tokens=100), control, blocks=20)
    weights = DECAY ** np.arange(20)
    assert cold.canary.prompt_tokens == pytest.approx(100 * weights.sum())
    assert cold.control.cached_tokens == pytest.approx(9000 * weights.sum())
