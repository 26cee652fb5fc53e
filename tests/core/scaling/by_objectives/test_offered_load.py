"""Demand of arrivals: sequences of an infinite-server queue, and prompt tokens that are due."""

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.arrivals import LONGEST_STEADY_S, WINDOW_GROWTH
from penstock.core.scaling.by_objectives.offered_load import OfferedLoad
from penstock.core.scaling.learned.capacity import EngineLimits, Mix
from penstock.core.scaling.learned.footprint import Demand, Footprint
from penstock.core.spec.objectives import Objectives

FOOTPRINT = Footprint.of(
    IterationModel(0.020, 1e-4, 0.0, 1e-7),
    Mix(1000, 1000, 1000),
    EngineLimits(1e9, 1e9),
    Objectives(3.0, 0.1),
)
SLACK_S, STAY_S = FOOTPRINT.slack_s, FOOTPRINT.stay_s
PERIOD_S = 2.0


@dataclass
class Service:
    """Arrivals of one service, from 0 s on."""

    load: OfferedLoad = field(default_factory=lambda: OfferedLoad().updated(0.0, 0, 0, FOOTPRINT))

    def add(self, arrivals: int, prompt_tokens: int = 0) -> None:
        now_s = self.load.arrivals.now.at_s + PERIOD_S
        self.load = self.load.updated(now_s, arrivals, prompt_tokens, FOOTPRINT)


def test_first_observation_counts_no_arrivals() -> None:
    load = OfferedLoad().updated(100.0, 50, 9999, FOOTPRINT)
    assert not load.is_known
    assert load.since_s == 100.0
    known = load.updated(102.0, 0, 0, FOOTPRINT)
    assert known.is_known
    assert known.now(FOOTPRINT) == Demand(0.0, 0.0)


def test_same_time_again_changes_nothing() -> None:
    load = OfferedLoad().updated(0.0, 0, 0, FOOTPRINT).updated(2.0, 4, 4000, FOOTPRINT)
    assert load.updated(2.0, 9, 9000, FOOTPRINT) == load


@pytest.mark.parametrize("seconds", [2, 10, 60, 3600])
def test_steady_rate_is_the_demand_from_its_first_interval_on(seconds: int) -> None:
    service = Service()
    for _ in range(0, seconds, 2):
        service.add(6, 9000)
    demand = service.load.now(FOOTPRINT)
    assert demand.answers == pytest.approx(3.0)
    assert demand.prompt_tokens == pytest.approx(4500.0)
    ahead = service.load.ahead(100.0, FOOTPRINT)
    assert ahead.answers == pytest.approx(3.0)
    assert ahead.prompt_tokens == pytest.approx(4500.0)


def test_burst_of_answers_fades_with_the_stay() -> None:
    """The fraction exp(-t / stay) of 100 answers still runs t seconds after their start."""
    service = Service()
    for _ in range(1800):
        service.add(0)
    service.add(100)
    first = service.load.now(FOOTPRINT).answers * STAY_S
    assert first == pytest.approx(100 * STAY_S / 2 * -math.expm1(-2 / STAY_S))
    for n in range(1, 60):
        service.add(0)
        left = service.load.now(FOOTPRINT).answers * STAY_S
        assert left == pytest.approx(first * math.exp(-PERIOD_S * n / STAY_S))


def test_sequences_over_time_are_answers_times_their_stay() -> None:
    """Little's law, of any pattern of arrivals in which each answer ends before the end."""
    draw = random.Random(3)
    service, total, area = Service(), 0, 0.0
    for n in range(3000):
        came = draw.choice([0, 0, 0, 5, 40]) if 1000 < n < 2000 else 0
        service.add(came)
        total += came
        # The mean jumps at the end of an interval, in the middle of which its arrivals came on average.
        area += service.load.now(FOOTPRINT).answers * STAY_S * PERIOD_S
    assert area == pytest.approx(total * STAY_S, rel=0.01)


def test_large_prompt_is_due_within_the_slack_and_counts_less_later() -> None:
    service = Service()
    for _ in range(100):
        service.add(0)
    service.add(1, 50_000)
    assert service.load.now(FOOTPRINT).prompt_tokens == pytest.approx(50_000 / (2 + SLACK_S))
    before = math.inf
    for _ in range(300):
        due = service.load.now(FOOTPRINT).prompt_tokens
        assert due <= before
        before = due
        service.add(0)
    assert due == 0


def test_history_is_bounded_and_its_end_changes_nothing() -> None:
    long, short = Service(), Service()
    for n in range(2000):
        long.add(3, 500 * (n % 7))
        if n >= 1000:
            short.add(3, 500 * (n % 7))
    assert len(long.load.arrivals.history) < WINDOW_GROWTH * LONGEST_STEADY_S / PERIOD_S + 40
    due = long.load.now(FOOTPRINT).prompt_tokens
    assert due == pytest.approx(short.load.now(FOOTPRINT).prompt_tokens)


@given(came=st.lists(st.integers(0, 50), min_size=1, max_size=30), factor=st.floats(0.1, 10.0))
def test_scaled_load_is_that_of_scaled_arrivals(came: list[int], factor: float) -> None:
    service = Service()
    for each in came:
        service.add(each, 700 * each)
    load, scaled = service.load, service.load.scaled(factor)
    for before, after in (
        (load.now(FOOTPRINT), scaled.now(FOOTPRINT)),
        (load.ahead(60.0, FOOTPRINT), scaled.ahead(60.0, FOOTPRINT)),
    ):
        assert after.answers == pytest.approx(factor * before.answers)
        assert after.prompt_tokens == pytest.approx(factor * before.prompt_tokens)


def test_running_answers_go_on_for_their_stay() -> None:
    """Just after all arrivals ended, answers that run are still counted, and none that begin."""
    service = Service()
    for _ in range(600):
        service.add(10)
    for _ in range(15):
        service.add(0)
    load = service.load
    soon, late = load.ahead(1.0, FOOTPRINT), load.ahead(100 * STAY_S, FOOTPRINT)
    assert soon.answers == pytest.approx(load.answers, rel=0.05)
    assert late.answers == pytest.approx(load.arrivals.steady_rates().answers, abs=1e-6)
    assert late.answers < 0.5 * soon.answers
