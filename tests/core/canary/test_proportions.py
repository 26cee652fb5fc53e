"""Shares of events in both arms, against NumPy and SciPy: an independent implementation."""

import numpy as np
import pytest
from scipy import stats

from penstock.core.canary.counts import Counts
from penstock.core.canary.proportions import FRACTIONS, INTERVAL_S, ProportionStatistics


def statistics_of(seed, intervals, *, share, cluster, canary_n=20, control_n=60):
    """Statistics of requests in clusters: all requests of a cluster are events, or none is."""
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
    """Events in clusters of five have about a fifth of their information, at any share of events."""
    tallies = [statistics_of(seed, 120, share=share, cluster=cluster) for seed in range(20)]
    assert low <= np.median([tally.dispersion for tally in tallies]) <= high


@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_the_dispersion_is_beside_the_binomial_variance(share):
    """Dispersion of a difference of shares; ten pseudo-requests shrink the canary's share."""
    tally = statistics_of(1, 50, share=share, cluster=5)
    canary, control = tally.canary, tally.control
    both = (canary.events + control.events) / (canary.requests + control.requests)
    shrunk_share = (canary.events + 10 * both) / (canary.requests + 10)
    # stats.bernoulli.var is p (1 - p); each side's counts by the requests of the other.
    variance = np.average(
        [stats.bernoulli.var(shrunk_share), stats.bernoulli.var(both)],
        weights=[control.requests, canary.requests],
    )
    kurtosis = 50 / (shrunk_share * canary.requests)
    assert tally.dispersion == pytest.approx(tally.spread.factor(float(variance), kurtosis))
    assert tally.spread.mean == pytest.approx(canary.share - control.share)


def test_a_tally_without_events_or_intervals_has_no_dispersion():
    assert ProportionStatistics().dispersion == 1.0
    assert statistics_of(1, 20, share=0.0, cluster=1).dispersion == 1.0
    assert ProportionStatistics().add(1.0, Counts(5, 2), Counts(5, 1)).dispersion == 1.0


def test_what_is_refuted_is_a_mixture_of_poisson_likelihoods():
    tally = statistics_of(4, 60, share=0.02, cluster=1)
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
    tally = statistics_of(5, 40, share=0.1, cluster=1)
    n, k = tally.canary.requests, tally.canary.events
    share = (k + 2) / (n + 4)
    assert tally.least_variance == pytest.approx(share * (1 - share) / (n + 4))
    margin = tally.spread.timeout_margin(tally.least_variance)
    assert tally.timeout_bound() == pytest.approx(share - tally.control.share + margin)
