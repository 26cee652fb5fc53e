"""Demand of arrivals: sequences of an infinite-server queue, and prompt tokens that are due."""

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.core.scaling.by_objectives.smoothing import FORECASTERS

from penstock.core.scaling.by_objectives.offered_load import (
    LONGEST_WINDOW_SLACKS,
    SHORTEST_WINDOW_S,
    WINDOW_GROWTH,
    OfferedLoad,
)
from penstock.core.scaling.learned.capacity import Mix, Room
from penstock.core.scaling.learned.footprint import Demand, Footprint
from penstock.core.scaling.learned.iteration import IterationModel
from penstock.core.spec.objectives import Objectives

FOOTPRINT = Footprint.of(
    IterationModel(0.020, 1e-4, 0.0, 1e-7),
    Mix(1000, 1000, 1000),
    Room(1e9, 1e9),
    Objectives(3.0, 0.1),
)
SLACK_S, STAY_S = FOOTPRINT.slack_s, FOOTPRINT.stay_s
LONGEST_S = LONGEST_WINDOW_SLACKS * SLACK_S
PERIOD_S = 2.0


@dataclass
class Arrivals:
    """Arrivals of one service from 0 s on. prompts: tokens by the time at which they were observed."""

    load: OfferedLoad = field(default_factory=lambda: OfferedLoad().after(0.0, 0, 0, FOOTPRINT))
    prompts: list[tuple[float, int]] = field(default_factory=list)

    def add(self, arrivals: int, prompt_tokens: int = 0, gap_s: float = PERIOD_S) -> None:
        now_s = self.load.at_s + gap_s
        self.load = self.load.after(now_s, arrivals, prompt_tokens, FOOTPRINT)
        self.prompts.append((now_s, prompt_tokens))

    def windows_s(self) -> list[float]:
        """All windows that begin at an observation."""
        now_s = self.load.at_s
        return [now_s, *(now_s - at_s for at_s, _ in self.prompts[:-1])]

    def due(self) -> tuple[float, float]:
        """The largest of tokens / (window + slack) up to the longest window; and its window."""
        return max(
            (self.tokens(window_s) / (window_s + SLACK_S), window_s)
            for window_s in self.windows_s()
            if window_s <= LONGEST_S or window_s == min(self.windows_s())
        )

    def tokens(self, window_s: float) -> int:
        since_s = self.load.at_s - window_s
        return sum(tokens for at_s, tokens in self.prompts if at_s > since_s + 1e-6)


def test_first_observation_counts_no_arrivals() -> None:
    load = OfferedLoad().after(100.0, 50, 9999, FOOTPRINT)
    assert not load.is_known
    assert load.since_s == 100.0
    known = load.after(102.0, 0, 0, FOOTPRINT)
    assert known.is_known
    assert known.now(FOOTPRINT) == Demand(0.0, 0.0)


def test_same_time_again_changes_nothing() -> None:
    load = OfferedLoad().after(0.0, 0, 0, FOOTPRINT).after(2.0, 4, 4000, FOOTPRINT)
    assert load.after(2.0, 9, 9000, FOOTPRINT) == load


@pytest.mark.parametrize("seconds", [2, 10, 60, 3600])
def test_steady_rate_is_the_demand_from_its_first_interval_on(seconds: int) -> None:
    arrivals = Arrivals()
    for _ in range(0, seconds, 2):
        arrivals.add(6, 9000)
    demand = arrivals.load.now(FOOTPRINT)
    assert demand.answers == pytest.approx(3.0)
    assert demand.prompt_tokens == pytest.approx(4500.0)
    for forecaster in FORECASTERS:
        ahead = arrivals.load.ahead(forecaster, 100.0, FOOTPRINT)
        assert ahead.answers == pytest.approx(3.0)
        assert ahead.prompt_tokens == pytest.approx(4500.0)


def test_burst_of_answers_fades_with_the_stay() -> None:
    """Of 100 answers that began at a time, the fraction exp(-t / stay) is there t seconds later."""
    arrivals = Arrivals()
    for _ in range(1800):
        arrivals.add(0)
    arrivals.add(100)
    first = arrivals.load.now(FOOTPRINT).answers * STAY_S
    assert first == pytest.approx(100 * STAY_S / 2 * -math.expm1(-2 / STAY_S))
    for n in range(1, 60):
        arrivals.add(0)
        left = arrivals.load.now(FOOTPRINT).answers * STAY_S
        assert left == pytest.approx(first * math.exp(-PERIOD_S * n / STAY_S))


def test_sequences_over_time_are_answers_times_their_stay() -> None:
    """Little's law, of any pattern of arrivals in which each answer ends before the end."""
    draw = random.Random(3)
    arrivals, total, area = Arrivals(), 0, 0.0
    for n in range(3000):
        came = draw.choice([0, 0, 0, 5, 40]) if 1000 < n < 2000 else 0
        arrivals.add(came)
        total += came
        # The mean jumps at the end of an interval, in the middle of which its arrivals came on average.
        area += arrivals.load.now(FOOTPRINT).answers * STAY_S * PERIOD_S
    assert area == pytest.approx(total * STAY_S, rel=0.01)


@settings(deadline=None, max_examples=60)
@given(
    observed=st.lists(
        st.tuples(
            st.one_of(st.just(0), st.integers(0, 2000), st.integers(0, 200_000)),
            st.floats(0.5, 10.0),
        ),
        min_size=8,
        max_size=60,
    )
)
def test_prompt_tokens_that_are_due(observed: list[tuple[int, float]]) -> None:
    """The largest rate of all windows, but that windows grow by a factor and begin at an observation.

    The mean rate of the longest window has no slack.
    """
    arrivals = Arrivals()
    for tokens, gap_s in observed:
        arrivals.add(1, tokens, gap_s)
    due = arrivals.load.now(FOOTPRINT).prompt_tokens
    exact, window_s = arrivals.due()
    next_s = max(SHORTEST_WINDOW_S, WINDOW_GROWTH * window_s)
    longest_s = next_s + max(gap_s for _, gap_s in observed)
    assert due >= exact * (window_s + SLACK_S) / (longest_s + SLACK_S) * (1 - 1e-9)
    by_window = ((w, arrivals.tokens(w)) for w in arrivals.windows_s())
    most = max(
        tokens / (w if w >= 0.99 * min(LONGEST_S, arrivals.load.at_s) else w + SLACK_S)
        for w, tokens in by_window
    )
    assert due <= most * (1 + 1e-9)


def test_large_prompt_is_due_within_the_slack_and_counts_less_later() -> None:
    arrivals = Arrivals()
    for _ in range(100):
        arrivals.add(0)
    arrivals.add(1, 50_000)
    assert arrivals.load.now(FOOTPRINT).prompt_tokens == pytest.approx(50_000 / (2 + SLACK_S))
    before = math.inf
    for _ in range(300):
        due = arrivals.load.now(FOOTPRINT).prompt_tokens
        assert due <= before
        before = due
        arrivals.add(0)
    assert due == 0


def test_history_is_bounded_and_its_end_changes_nothing() -> None:
    long, short = Arrivals(), Arrivals()
    for n in range(2000):
        long.add(3, 500 * (n % 7))
        if n >= 1000:
            short.add(3, 500 * (n % 7))
    assert len(long.load.arrived) < WINDOW_GROWTH * LONGEST_S / PERIOD_S + 4
    due = long.load.now(FOOTPRINT).prompt_tokens
    assert due == pytest.approx(short.load.now(FOOTPRINT).prompt_tokens)


@given(came=st.lists(st.integers(0, 50), min_size=1, max_size=30), factor=st.floats(0.1, 10.0))
def test_scaled_load_is_that_of_scaled_arrivals(came: list[int], factor: float) -> None:
    arrivals = Arrivals()
    for each in came:
        arrivals.add(each, 700 * each)
    load, scaled = arrivals.load, arrivals.load.scaled(factor)
    for before, after in (
        (load.now(FOOTPRINT), scaled.now(FOOTPRINT)),
        (load.ahead(5, 60.0, FOOTPRINT), scaled.ahead(5, 60.0, FOOTPRINT)),
    ):
        assert after.answers == pytest.approx(factor * before.answers)
        assert after.prompt_tokens == pytest.approx(factor * before.prompt_tokens)


def test_running_answers_go_on_for_their_stay() -> None:
    """Just after all arrivals ended, a forecaster that expects none still counts what runs."""
    arrivals = Arrivals()
    for _ in range(600):
        arrivals.add(10)
    for _ in range(15):
        arrivals.add(0)
    load = arrivals.load
    soon, late = load.ahead(0, 1.0, FOOTPRINT), load.ahead(0, 100 * STAY_S, FOOTPRINT)
    assert soon.answers == pytest.approx(load.answers, rel=0.05)
    assert late.answers == pytest.approx(load.answer_means.ahead(0, 1.0), rel=1e-6)
    assert late.answers < 0.5 * soon.answers
