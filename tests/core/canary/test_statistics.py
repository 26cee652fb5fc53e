"""Statistics of the judge, against closed forms."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.canary.bins import EMPTY_QUEUE_BINS, NUM_BINS, NUM_QUEUE_BINS, ttft_bin
from penstock.core.canary.counts import Counts
from penstock.core.canary.dispersion import Dispersion
from penstock.core.canary.errors import Errors
from penstock.core.canary.estimate import MULTIPLES, NO_ESTIMATE, PRIOR, Estimate
from penstock.core.canary.evidence import History
from penstock.core.canary.gates import poisson_tail
from penstock.core.canary.moments import Moments
from penstock.core.canary.shift import QUEUE_LENGTHS, UNCORRELATED, Shift
from penstock.core.canary.violations import Violations
from penstock.core.canary.weight import next_weight
from penstock.core.spec.canary import CanarySpec

SCALE = math.log(1.1)
# Degrees of freedom: the variance is as good as known.
MANY = 1e9
values = st.lists(st.floats(-5, 5), min_size=1, max_size=20)


@given(values, values)
def test_moments_add_up_in_any_order(left, right):
    a, b = Moments.of(left), Moments.of(right)
    both = Moments.of([*right, *left])
    for summed in (a.plus(b), b.plus(a)):
        assert summed.n == both.n
        assert summed.total == pytest.approx(both.total, abs=1e-9)
        assert summed.squares == pytest.approx(both.squares, abs=1e-9)


@given(values, st.floats(-5, 5))
def test_a_level_is_taken_off_each_value(raw, level):
    rest = Moments.of(raw).centered_at(level)
    direct = Moments.of(value - level for value in raw)
    assert rest.total == pytest.approx(direct.total, abs=1e-9)
    assert rest.squares == pytest.approx(direct.squares, abs=1e-8)


@pytest.mark.parametrize(
    ("tokens", "expected"), [(1, 0), (128, 0), (129, 1), (1024, 3), (8192, 6), (8193, 7)]
)
def test_bins_of_prompt_length(tokens, expected):
    assert {ttft_bin(tokens, ahead) // NUM_QUEUE_BINS for ahead in range(100)} == {expected}


@pytest.mark.parametrize(("ahead", "expected"), [(0, 0), (1, 1), (3, 2), (4, 3), (15, 4), (16, 5)])
def test_bins_of_requests_ahead(ahead, expected):
    assert ttft_bin(1, ahead) == expected
    assert ttft_bin(9000, ahead) == NUM_BINS - NUM_QUEUE_BINS + expected


def test_no_data_is_an_even_bet_and_bounds_nothing():
    assert NO_ESTIMATE.e_value(SCALE) == pytest.approx(1)
    assert NO_ESTIMATE.two_sided_e_value(SCALE, SCALE) == pytest.approx(1)
    assert NO_ESTIMATE.radius(SCALE, 0.01) == math.inf


def test_the_prior_is_a_distribution_over_regressions():
    assert sum(PRIOR) == pytest.approx(1)
    assert min(MULTIPLES) >= 1


@given(st.floats(-0.5, 0.5), st.floats(1, 1e5), st.floats(0.001, 0.2))
def test_an_e_value_is_positive_and_grows_with_the_regression(x, information, more):
    less, greater = (
        Estimate(x, information, MANY, 1, 1),
        Estimate(x + more, information, MANY, 1, 1),
    )
    assert 0 <= less.e_value(SCALE) <= greater.e_value(SCALE)


@pytest.mark.parametrize("information", [10.0, 100.0, 1000.0])
def test_the_mean_e_value_under_no_regression_is_one(information):
    """Expected e-value by quadrature over the distribution of the estimate."""
    sd = 1 / math.sqrt(information)
    grid = [-10 + 50 * i / 20_000 for i in range(20_001)]
    density = [math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * 50 / 20_000 for z in grid]
    mean = math.fsum(
        d * Estimate(z * sd, information, MANY, 1, 1).e_value(SCALE)
        for z, d in zip(grid, density, strict=True)
    )
    assert mean == pytest.approx(1, rel=1e-3)


def test_the_confidence_sequence_covers_at_all_times():
    """A random walk of 2,000 steps leaves a one-sided 5 % bound in at most 5 % of 400 walks."""
    draw = random.Random(11)
    radii = [Estimate(0.0, n, MANY, n, n).radius(SCALE, 0.05) for n in range(1, 2001)]
    left = 0
    for _ in range(400):
        total = 0.0
        for n, radius in enumerate(radii, start=1):
            total += draw.gauss(0, 1)
            if total / n + radius < 0:
                left += 1
                break
    assert left <= 20


def differences(draw, correlation, n):
    level, out = 0.0, []
    for _ in range(n):
        level = correlation * level + math.sqrt(1 - correlation**2) * draw.gauss(0, 1)
        out.append(level)
    return out


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 1.0, 1.15), (0.8, 4.0, 12.0)])
def test_dispersion_tells_correlation_from_noise(correlation, low, high):
    """The design effect of an autoregression is (1 + r) / (1 - r): 9 at 0.8."""
    draw = random.Random(5)
    factors = []
    for _ in range(30):
        spread = Dispersion()
        for difference in differences(draw, correlation, 300):
            spread = spread.add(1.0, difference)
        factors.append(spread.factor(1.0))
    assert low <= statistics.median(factors) <= high


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 1.0, 1.1), (0.8, 3.0, 12.0)])
def test_what_lasts_is_told_from_noise_without_knowing_the_noise(correlation, low, high):
    draw = random.Random(5)
    factors = []
    for _ in range(30):
        spread = Dispersion()
        for difference in differences(draw, correlation, 300):
            spread = spread.add(1.0, 7 * difference)
        factors.append(spread.lasting_factor)
    assert low <= statistics.median(factors) <= high


@given(st.floats(0.05, 0.5), st.floats(10, 1e4), st.floats(5, 500))
def test_a_variance_known_from_less_wins_less_and_bounds_less(x, information, degrees):
    """The e-value is compared only where the bet wins."""
    few = Estimate(x, information, degrees, 1, 1)
    many = Estimate(x, information, 2 * degrees, 1, 1)
    assert few.radius(SCALE, 0.01) >= many.radius(SCALE, 0.01)
    if few.e_value(SCALE) > 100:
        assert few.e_value(SCALE) <= many.e_value(SCALE)


def shifted(draw, seconds_each, shift, *, by_length=0.0, intervals=60):
    state = Shift()
    for _ in range(intervals):
        sides = []
        for count, level in ((seconds_each, shift), (9 * seconds_each, 0.0)):
            bins = [[], []]
            for _ in range(count):
                which = draw.randrange(2)
                bins[which].append(draw.gauss(level + by_length * which, 0.5))
            sides.append(tuple(Moments.of(each) for each in bins))
        state = state.add(10.0, *sides, QUEUE_LENGTHS)
    return state.estimate()


def test_an_estimate_finds_the_shift_and_knows_its_precision():
    draw = random.Random(3)
    errors = []
    for _ in range(100):
        estimate = shifted(draw, 5, 0.2)
        errors.append((estimate.difference - 0.2) * math.sqrt(estimate.information))
    assert abs(statistics.mean(errors)) < 0.3
    assert 0.75 < statistics.stdev(errors) < 1.2


def test_prompt_length_is_taken_out():
    """Two lengths three apart: two and a quarter of variance beside a quarter of noise."""
    plain = shifted(random.Random(4), 5, 0.0)
    mixed = shifted(random.Random(4), 5, 0.0, by_length=3.0)
    assert mixed.information > 0.7 * plain.information


def queued(draw, intervals, *, canary_ahead, known=(0, 5)):
    """log latency 1 at nobody ahead and 3 at five, on both sides; the canary has its own mix."""
    state = Shift()
    for _ in range(intervals):
        sides = []
        for count, aheads in ((5, canary_ahead), (45, known)):
            bins = [[] for _ in range(NUM_BINS)]
            for _ in range(count):
                ahead = draw.choice(aheads)
                bins[ttft_bin(100, ahead)].append(draw.gauss(3.0 if ahead else 1.0, 0.5))
            sides.append(tuple(Moments.of(each) for each in bins))
        state = state.add(10.0, *sides, QUEUE_LENGTHS)
    return state.estimate()


def test_a_longer_queue_is_not_the_revisions_doing():
    estimate = queued(random.Random(5), 60, canary_ahead=(0, 5, 5, 5))
    assert abs(estimate.difference) * math.sqrt(estimate.information) < 3


def test_a_queue_that_the_control_never_had_is_not_compared():
    estimate = queued(random.Random(5), 60, canary_ahead=(0, 5), known=(0,))
    assert abs(estimate.difference) * math.sqrt(estimate.information) < 3
    assert estimate.canary_n < 60 * 5 * 0.6


def largest_e_value(draw, intervals):
    """The largest e-value against a canary equal to its control, if the requests of one side of an interval
    share a delay, as in a queue of four."""
    state, most = Shift(), 0.0
    for _ in range(intervals):
        sides = []
        for _ in range(2):
            fate = draw.gauss(0.0, 0.4)
            bins = [[] for _ in range(NUM_BINS)]
            for ahead in (0, 1, 2, 3, 4, 1, 2, 3):
                bins[ttft_bin(100, ahead)].append(fate + draw.gauss(0.0, 0.6))
            sides.append(tuple(Moments.of(each) for each in bins))
        state = state.add(10.0, *sides, QUEUE_LENGTHS)
        most = max(most, state.estimate().e_value(SCALE))
    return most


def test_queued_requests_are_not_taken_for_independent():
    """A fair bet wins 20 to 1 in one life of 20."""
    draw = random.Random(1)
    assert sum(largest_e_value(draw, 25) >= 20 for _ in range(200)) <= 10


def test_requests_are_gathered_until_there_are_enough():
    one = (Moments.of([0.0]),)
    state = Shift()
    for _ in range(5):
        state = state.add(10.0, one, one, UNCORRELATED)
    assert state.dispersion.n == 0
    assert state.add(10.0, one, one, UNCORRELATED).dispersion.n == 1  # a minute is over


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1)), min_size=1, max_size=30))
def test_errors_of_one_interval_may_come_in_any_order_of_requests(pairs):
    """Within a block only counts matter: the same counts in one block or as the sum of parts."""
    requests = sum(n for n, _ in pairs)
    errors = sum(k for _, k in pairs)
    whole = Errors(0.01).add(10.0, Counts(requests, errors), Counts(100, 1))
    assert whole.tally.canary == Counts(requests, errors)
    assert whole.e_value() >= 0


def test_bets_on_errors_are_fair():
    """The mean e-value of equal shares is at most 1, up to the noise of 3,000 runs."""
    draw = random.Random(8)
    total, lives = 0.0, 3000
    for _ in range(lives):
        state = Errors(0.01)
        for _ in range(12):
            counts = [sum(draw.random() < 0.02 for _ in range(n)) for n in (5, 15)]
            state = state.add(10.0, Counts(5, counts[0]), Counts(15, counts[1]))
        total += state.e_value()
    assert total / lives < 1.15


def test_history_makes_rare_errors_speak_sooner():
    known = Errors.with_history(0.01, History(16_000, 16))
    unknown = Errors(0.01)
    for _ in range(10):
        canary, control = Counts(30, 1), Counts(270, 0)
        known, unknown = known.add(60.0, canary, control), unknown.add(60.0, canary, control)
    assert known.e_value() > unknown.e_value() > 1


def test_errors_within_tolerance_are_shown_to_be():
    few, many = Errors(0.01), Errors(0.01)
    for index in range(100):
        few = few.add(10.0, Counts(20, 0), Counts(200, 0))
        many = many.add(10.0, Counts(20, int(index % 4 == 0)), Counts(200, 0))
    assert few.is_within(0.01)
    assert not many.is_within(0.01)
    assert few.reading(0.01).high < 0.01 < many.reading(0.01).high


@pytest.mark.parametrize("misses", [5, 50, 500])
def test_one_cluster_of_misses_counts_once_however_large(misses):
    canary, control = Counts(misses, misses), Counts(9 * misses, 0)
    state = Violations(0.05).add(30.0, canary, control, EMPTY_QUEUE_BINS, EMPTY_QUEUE_BINS)
    assert state.e_value() == pytest.approx((1.5 + 1.8 + 1.8 + 1.8) / 4)


def test_steady_misses_win():
    state = Violations(0.05)
    for _ in range(40):
        canary, control = Counts(10, 2), Counts(90, 2)
        state = state.add(30.0, canary, control, EMPTY_QUEUE_BINS, EMPTY_QUEUE_BINS)
    assert state.e_value() > 100


@pytest.mark.parametrize(
    ("events", "expected", "low", "high"),
    [(0, 0.0, 1, 1), (1, 2.0, 1, 1), (5, 0.01, 8e-13, 9e-13), (10, 5.0, 0.0318, 0.034)],
)
def test_the_poisson_tail_is_bounded_from_above(events, expected, low, high):
    """P(X >= 10) of mean 5 is 0.0318."""
    assert low <= poisson_tail(events, expected) <= high


@pytest.mark.parametrize(
    ("weight", "progress", "e_value", "expected"),
    [
        (0.05, 0.0, 1.0, 0.05),
        (0.05, 0.3, 1.0, 0.05 * 10**0.3),
        (0.05, 1.0, 1.0, 0.10),  # twofold at most
        (0.30, 1.0, 1.0, 0.50),
        (0.30, 1.0, 10.0, 0.30),  # under suspicion
        (0.30, 0.1, 1.0, 0.30),  # never less
    ],
)
def test_next_weight(weight, progress, e_value, expected):
    assert next_weight(CanarySpec(), weight, progress, e_value) == pytest.approx(expected)
