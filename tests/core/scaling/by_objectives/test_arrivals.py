"""Arrivals: mean rates since the load last changed, measured dispersion, and prompts that are due."""

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import fmean, median

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.arrivals import (
    LONGEST_STEADY_S,
    PRIOR_DISPERSION,
    SHORTEST_STEADY_S,
    WINDOW_GROWTH,
    Arrivals,
    Arrived,
)
from penstock.core.scaling.learned.capacity import EngineLimits, Mix
from penstock.core.scaling.learned.footprint import Demand, Footprint
from penstock.core.spec.objectives import Objectives

PROMPT_TOKENS = 1000
FOOTPRINT = Footprint.of(
    IterationModel(0.020, 1e-4, 0.0, 1e-7),
    Mix(PROMPT_TOKENS, PROMPT_TOKENS, 300),
    EngineLimits(1e9, 1e9),
    Objectives(3.0, 0.1),
)
SLACK_S = FOOTPRINT.slack_s
PERIOD_S, KEPT_S, SEEDS = 2.0, 100.0, range(20)
EMPTY = Arrivals((Arrived(0.0),))
Rate = Callable[[float], float]
# Requests, prompt tokens, and the time since the last observation.
Observed = tuple[int, int, float]


def add_arrivals(
    arrivals: Arrivals, requests: int, tokens: int, gap_s: float = PERIOD_S
) -> Arrivals:
    now_s = arrivals.now.at_s + gap_s
    return arrivals.updated(now_s, requests, tokens, FOOTPRINT, KEPT_S)


def arrivals_of(observed: list[Observed]) -> Arrivals:
    arrivals = EMPTY
    for requests, tokens, gap_s in observed:
        arrivals = add_arrivals(arrivals, requests, tokens, gap_s)
    return arrivals


def poisson(draw: random.Random, mean: float) -> int:
    """A Poisson number: a normal one where that is the same but for a percent."""
    if mean > 100:
        return max(0, round(draw.gauss(mean, math.sqrt(mean))))
    at, count = draw.expovariate(1.0), 0
    while at < mean:
        at, count = at + draw.expovariate(1.0), count + 1
    return count


def history(
    rate: Rate, seconds: float, seed: int, batch: int = 1, gaps_s: tuple[float, float] | None = None
) -> Iterator[Arrivals]:
    """Arrivals of Poisson batches, after each observation. gaps_s: bounds of random gaps between them."""
    draw, arrivals = random.Random(seed), EMPTY
    while arrivals.now.at_s < seconds:
        gap_s = draw.uniform(*gaps_s) if gaps_s else PERIOD_S
        came = batch * poisson(draw, rate(arrivals.now.at_s) * gap_s / batch)
        arrivals = add_arrivals(arrivals, came, PROMPT_TOKENS * came, gap_s)
        yield arrivals


def last(each: Iterator[Arrivals]) -> Arrivals:
    *_, found = each
    return found


def answers(arrivals: Arrivals) -> float:
    return arrivals.steady_rates().answers


@pytest.mark.parametrize("rate", [0.2, 1.0, 10.0, 200.0])
def test_steady_arrivals_are_averaged_over_the_longest_window(rate: float) -> None:
    """The mean of all seeds is right within four standard errors, and no seed is off by much more."""
    rates = [answers(last(history(lambda _: rate, 1200, seed))) for seed in SEEDS]
    error = math.sqrt(rate / LONGEST_STEADY_S)
    close = [found for found in rates if abs(found - rate) < 3 * error]
    assert fmean(rates) == pytest.approx(rate, abs=4 * error / math.sqrt(len(rates)) + 0.01 * rate)
    assert len(close) >= 0.8 * len(rates)


@pytest.mark.parametrize("seconds", [2, 10, 60, 3600])
def test_even_arrivals_have_their_rate_from_the_first_interval_on(seconds: int) -> None:
    rates = arrivals_of([(6, 9000, PERIOD_S)] * (seconds // 2)).steady_rates()
    assert rates.answers == pytest.approx(3.0)
    assert rates.prompt_tokens == pytest.approx(4500.0)


@pytest.mark.parametrize("gaps_s", [None, (1.0, 3.0), (0.5, 12.0)])
@pytest.mark.parametrize(
    ("before", "since", "within_s"),
    [(10.0, 20.0, 30.0), (10.0, 5.0, 30.0), (2.0, 8.0, 30.0), (2.0, 0.0, 40.0), (1.0, 3.0, 60.0)],
)
def test_step_is_followed_within_some_tens_of_seconds(
    before: float, since: float, within_s: float, gaps_s: tuple[float, float] | None
) -> None:
    """Half of the seeds are closer to the new rate than to the old one, and soon nearly all are."""
    middle = (before + since) / 2

    def followed_s(seed: int) -> float:
        """Time from which on the mean rate is on the other side of the middle."""
        each = history(lambda at_s: since if at_s >= 900 else before, 1100, seed, gaps_s=gaps_s)
        for arrivals in each:
            is_later = arrivals.now.at_s > 900
            if is_later and (answers(arrivals) > middle) == (since > before):
                return arrivals.now.at_s - 900
        return math.inf

    times_s = sorted(followed_s(seed) for seed in SEEDS)
    assert median(times_s) <= within_s
    assert times_s[-2] <= 2 * within_s


def test_burst_of_one_observation_is_not_a_new_rate_for_long() -> None:
    observed = [(20, 20 * PROMPT_TOKENS, PERIOD_S)] * 400
    burst = arrivals_of([*observed, (60, 60 * PROMPT_TOKENS, PERIOD_S), *observed[:60]])
    assert answers(burst) == pytest.approx(10.0, rel=0.02)


@pytest.mark.parametrize("gaps_s", [None, (1.9, 2.4), (0.5, 12.0)])
@pytest.mark.parametrize(
    ("batch", "rate"), [(1, 1.0), (1, 10.0), (1, 200.0), (2, 10.0), (6, 60.0), (20, 200.0)]
)
def test_dispersion_is_the_size_of_batches(
    batch: int, rate: float, gaps_s: tuple[float, float] | None
) -> None:
    """The dispersion of single requests is one at any rate, also with uneven observation times."""
    each = history(lambda _: rate, 3 * 3600, 1, batch, gaps_s)
    found = fmean(arrivals.dispersion for arrivals in each if arrivals.now.at_s > 1800)
    assert found == pytest.approx(batch, rel=0.25)


def test_dispersion_of_even_arrivals_falls_to_that_of_poisson_arrivals() -> None:
    even = arrivals_of([(6, 9000, PERIOD_S)] * 2000)
    assert even.dispersion == 1.0


def test_change_of_the_rate_is_no_dispersion() -> None:
    """A step to a hundred times the rate leaves the dispersion of the same order."""
    each = history(lambda at_s: 100.0 if at_s >= 1800 else 1.0, 1900, 1)
    found = {arrivals.now.at_s: arrivals.dispersion for arrivals in each}
    assert found[1900.0] < 2 * found[1800.0]


def test_nothing_arrives() -> None:
    idle = arrivals_of([(0, 0, PERIOD_S)] * 1000)
    assert idle.steady_rates() == Demand(0.0, 0.0)
    assert idle.due_rate(SLACK_S, 8 * SLACK_S) == 0.0
    assert idle.dispersion == PRIOR_DISPERSION


@pytest.mark.parametrize("arrivals", [EMPTY, add_arrivals(EMPTY, 0, 0)])
def test_first_observations_have_no_rate(arrivals: Arrivals) -> None:
    assert arrivals.steady_rates() == Demand(0.0, 0.0)
    assert arrivals.due_rate(SLACK_S, 8 * SLACK_S) == 0.0


def test_history_is_kept_for_the_longest_window_and_no_longer() -> None:
    longest_s = WINDOW_GROWTH * LONGEST_STEADY_S
    for arrivals in history(lambda _: 10.0, 6000, 1):
        assert len(arrivals.history) <= longest_s / PERIOD_S + 3
    assert arrivals.now.at_s - arrivals.history[0].at_s >= longest_s


def test_as_much_of_the_past_is_kept_as_is_asked_for() -> None:
    arrivals = EMPTY
    for n in range(1, 3000):
        arrivals = arrivals.updated(PERIOD_S * n, 1, 1, FOOTPRINT, kept_s=2000.0)
    assert 2000 <= arrivals.now.at_s - arrivals.history[0].at_s <= 2000 + 2 * PERIOD_S


OBSERVED = st.lists(
    st.tuples(
        st.one_of(st.just(0), st.integers(0, 20), st.integers(0, 10_000)),
        st.one_of(st.just(0), st.integers(0, 2000), st.integers(0, 10**7)),
        st.one_of(st.just(PERIOD_S), st.floats(0.5, 10.0), st.floats(1e-3, 2000.0)),
    ),
    min_size=1,
    max_size=80,
)


@settings(deadline=None)
@given(observed=OBSERVED)
def test_rates_are_within_those_that_were_observed(observed: list[Observed]) -> None:
    arrivals = arrivals_of(observed)
    rates = arrivals.steady_rates()
    gaps = [(b.at_s - a.at_s, a, b) for a, b in pairwise(arrivals.history)]
    requests = [(b.requests - a.requests) / gap_s for gap_s, a, b in gaps]
    tokens = [(b.prompt_tokens - a.prompt_tokens) / gap_s for gap_s, a, b in gaps]
    assert min(requests) * 0.999 <= rates.answers <= max(requests) * 1.001
    assert min(tokens) * 0.999 <= rates.prompt_tokens <= max(tokens) * 1.001
    assert 1.0 <= arrivals.dispersion < math.inf


@settings(deadline=None)
@given(observed=OBSERVED, factor=st.floats(0.1, 10.0))
@example(observed=[(0, 0, 949), (0, 0, 2), (0, 1, 9)], factor=4.0)  # a prompt of no request
def test_scaled_arrivals_have_scaled_rates(observed: list[Observed], factor: float) -> None:
    """The window is the same, as each change and its noise are scaled alike."""
    arrivals = arrivals_of([(100, 1000, PERIOD_S), *observed])
    scaled = arrivals.scaled(factor)
    before, scaled_rates = arrivals.steady_rates(), scaled.steady_rates()
    assert scaled_rates.answers == pytest.approx(factor * before.answers)
    assert scaled_rates.prompt_tokens == pytest.approx(factor * before.prompt_tokens)
    due = arrivals.due_rate(SLACK_S, 8 * SLACK_S)
    assert scaled.due_rate(SLACK_S, 8 * SLACK_S) == pytest.approx(factor * due)
    assert arrivals.scaled(1.0) == arrivals


@settings(deadline=None)
@given(
    tokens=st.lists(
        st.tuples(
            st.one_of(st.just(0), st.integers(0, 2000), st.integers(0, 200_000)),
            st.floats(0.5, 10.0),
        ),
        min_size=1,
        max_size=60,
    ),
    longest_s=st.floats(3.0, 60.0),
)
def test_prompts_that_are_due_by_hand(tokens: list[tuple[int, float]], longest_s: float) -> None:
    """The largest rate of all windows that begin at an observation and end now.

    But windows grow by a factor, so the largest one may be missed by as much; and the mean rate of the
    longest one has no slack.
    """
    arrivals = arrivals_of([(1, came, gap_s) for came, gap_s in tokens])
    due, now = arrivals.due_rate(SLACK_S, longest_s), arrivals.now
    windows = [
        (now.at_s - then.at_s, now.prompt_tokens - then.prompt_tokens)
        for then in arrivals.history[:-1]
    ]
    limit_s = min(longest_s, now.at_s)
    rates = [
        (came / (window_s + SLACK_S), window_s) for window_s, came in windows if window_s <= limit_s
    ]
    exact, window_s = max(rates, default=(0.0, 0.0))
    next_s = WINDOW_GROWTH * window_s + max(gap_s for _, gap_s in tokens)
    assert due >= exact * (window_s + SLACK_S) / (next_s + SLACK_S) * (1 - 1e-9)
    without_slack = [
        came / (window_s + (SLACK_S if window_s < 0.99 * limit_s else 0.0))
        for window_s, came in windows
    ]
    assert due <= max(without_slack) * (1 + 1e-9)


def test_shortest_steady_window_is_not_cut_by_observations_that_are_close() -> None:
    """Ten observations a second: a few requests within a second are no new rate."""
    observed = [(1, PROMPT_TOKENS, 0.1)] * 3000 + [(4, 4 * PROMPT_TOKENS, 0.1)] * 5
    assert answers(arrivals_of(observed)) < 10.0 * (1 + 3.0 * 0.5 / SHORTEST_STEADY_S) * 1.01
