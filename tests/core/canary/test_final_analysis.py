"""The final analysis of a canary may use evidence that repeated analyses may not."""

import math
import random

import pytest

from penstock.core.canary.bins import NUM_BINS, NUM_QUEUE_BINS, queue_bin, ttft_bin
from penstock.core.canary.counts import Counts
from penstock.core.canary.dispersion import TIMEOUT_BATCHES, TIMEOUT_Z, Dispersion, student_t
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.proportions import INTERVAL_S, ProportionStatistics
from penstock.core.canary.shift import QUEUE_LENGTHS, Shift
from penstock.core.canary.verdict import Abort, Accept, Continue
from penstock.core.canary.violations import Violations
from penstock.core.spec.canary import CanarySpec

TWENTY_MINUTES = CanarySpec(max_duration_s=1200.0)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(8, 2.306), (11, 2.201), (30, 2.042), (1000, 1.962)]
)
def test_students_quantile(degrees, expected):
    assert student_t(TIMEOUT_Z, degrees) == pytest.approx(expected, abs=0.01)


def drifting(draw, autocorrelation):
    """Differences of mean 0 with this lag-one autocorrelation."""
    spread, value = Dispersion(), 0.0
    for _ in range(200):
        value = autocorrelation * value + draw.gauss(
            0.0, math.sqrt(1 - autocorrelation * autocorrelation)
        )
        spread = spread.add(1.0, value)
    return spread


@pytest.mark.parametrize("autocorrelation", [0.0, 0.5, 0.8])
def test_the_bound_is_below_the_truth_as_seldom_as_it_says(autocorrelation):
    """2.5 %, and a little more where neighbors are correlated for longer than a batch."""
    draw = random.Random(2)
    spreads = [drifting(draw, autocorrelation) for _ in range(400)]
    missed = sum(spread.mean + spread.timeout_margin() < 0.0 for spread in spreads)
    assert 1 <= missed <= 26


def test_a_few_batches_bound_nothing():
    spread = Dispersion()
    for index in range(TIMEOUT_BATCHES):
        assert spread.timeout_margin() == math.inf
        spread = spread.add(1.0, float(index % 2))
    assert spread.timeout_margin() < math.inf


@pytest.mark.parametrize(("per_interval", "is_known"), [(1, False), (20, True)])
def test_no_event_among_few_requests_shows_little(per_interval, is_known):
    tally = ProportionStatistics()
    for _ in range(2 * TIMEOUT_BATCHES):
        tally = tally.add(INTERVAL_S, Counts(per_interval, 0), Counts(9 * per_interval, 0))
    assert (tally.timeout_bound() < 0.05) is is_known


def random_misses(draw, requests, queued_share, shares):
    """Misses of random requests by requests ahead, and their count. queued_share: of queued requests.

    shares: of requests that miss, without and with a queue.
    """
    queued = sum(draw.random() < queued_share for _ in range(requests))
    bins = [NOTHING] * NUM_QUEUE_BINS
    for line, n in ((0, requests - queued), (4, queued)):
        late = sum(draw.random() < shares[line > 0] for _ in range(n))
        bins[queue_bin(line)] = Moments(n, late, late)
    return tuple(bins), Counts(requests, round(sum(each.total for each in bins)))


@pytest.mark.parametrize(
    ("queued_share", "shares", "is_within"),
    [
        (0.2, (0.0, 0.4), True),
        (0.6, (0.0, 0.4), True),  # a longer line, and as many late in it
        (0.2, (0.0, 0.9), False),
        (0.2, (0.1, 0.4), False),
    ],
)
def test_misses_are_compared_in_lines_of_one_length(queued_share, shares, is_within):
    draw, state = random.Random(3), Violations(0.05)
    for _ in range(4 * TIMEOUT_BATCHES):
        canary_missed, canary = random_misses(draw, 60, queued_share, shares)
        control_missed, control = random_misses(draw, 540, 0.2, (0.0, 0.4))
        state = state.add(INTERVAL_S, canary, control, canary_missed, control_missed)
    assert state.is_within_at_timeout() is is_within


@pytest.mark.parametrize(("per_interval", "is_known"), [(1, False), (20, True)])
def test_no_miss_among_few_requests_shows_little(per_interval, is_known):
    state = Violations(0.05)
    for _ in range(2 * TIMEOUT_BATCHES):
        sides = [random_misses(random.Random(1), n * per_interval, 0.0, (0.0, 0.0)) for n in (1, 9)]
        state = state.add(INTERVAL_S, *(c for _, c in sides), *(m for m, _ in sides))
    assert state.is_within_at_timeout() is is_known


def ended(make, **worse):
    """The verdicts on canaries with too little traffic to be known at all times, when time is up."""
    verdicts = []
    for seed in range(6):
        state = JudgeState.begin(TWENTY_MINUTES)
        for block in make.blocks(120, seed=seed, canary_requests=5, control_requests=45, **worse):
            verdict, state = judge(TWENTY_MINUTES, state, block)
            if not isinstance(verdict, Continue):
                break
        verdicts.append(verdict)
    return verdicts


def test_the_last_look_promotes_what_is_like_stable(make):
    verdicts = ended(make)
    assert sum(isinstance(verdict, Accept) for verdict in verdicts) >= 5
    assert any("in the final analysis" in verdict.reason for verdict in verdicts)


def test_the_last_look_promotes_nothing_that_is_as_much_worse_as_is_tolerated(make):
    verdicts = ended(make, ttft=0.3 * 1.12)
    assert all(isinstance(verdict, Abort) for verdict in verdicts)


def information_after(aheads):
    """Evidence of a canary whose requests waited behind many others without higher latency."""
    draw, state = random.Random(7), Shift()
    for _ in range(15):
        sides = []
        for count, many in ((5, aheads), (45, (0, 1, 4))):
            bins = [[] for _ in range(NUM_BINS)]
            for index in range(count):
                bins[ttft_bin(100, many[index % len(many)])].append(draw.gauss(0.0, 0.8))
            sides.append(tuple(Moments.of(each) for each in bins))
        state = state.add(10.0, *sides, QUEUE_LENGTHS)
    return state.estimate().information


def test_requests_that_a_long_line_holds_up_count_for_less():
    assert information_after((4, 4, 4, 1, 4)) < 0.6 * information_after((0, 1, 0, 1, 0))
