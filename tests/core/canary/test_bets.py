"""Bets on errors and on missed objectives, against NumPy and SciPy: an independent implementation."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from penstock.core.canary import gates
from penstock.core.canary.counts import Counts
from penstock.core.canary.errors import MULTIPLES as ERROR_MULTIPLES
from penstock.core.canary.errors import PRIOR_REQUESTS, Errors
from penstock.core.canary.errors import STAKES as ERROR_STAKES
from penstock.core.canary.moments import Moments
from penstock.core.canary.proportions import INTERVAL_S
from penstock.core.canary.violations import BETS, LARGEST_LOSS, Violations
from penstock.core.canary.violations import MIN_INTERVALS as MIN_VIOLATION_INTERVALS


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
