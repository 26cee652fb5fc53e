"""Counterfactual loss of a fixed service rate, checked by hand and against a simulated queue."""

import json
import random
from bisect import bisect_right
from itertools import pairwise

import pytest

from penstock.core.formats.serialization import deserialize, serialize
from penstock.core.scaling.by_objectives.counterfactual import (
    FAILURE,
    MEMORY_S,
    MIN_BURSTS,
    MOST_CAREFUL,
    PRIOR_S,
    QUIET_S,
    RATES,
    Counterfactual,
)
from penstock.core.scaling.by_objectives.outcomes import Outcomes

SLACK_S, LOOK_S = 2.0, 2.0
NOBODY_TELLS = Outcomes()


def seen(
    work: list[float],
    rate: float,
    hindsight: Counterfactual | None = None,
    outcomes: Outcomes = NOBODY_TELLS,
) -> Counterfactual:
    """Observe `work` seconds of work in each tick. rate: service rate of the replicas. outcomes: of
    requests, the same in each tick."""
    hindsight = hindsight or Counterfactual()
    now_s, total_s = hindsight.at_s or 0.0, hindsight.total_s
    hindsight = hindsight.with_observation(now_s, total_s, SLACK_S, rate, NOBODY_TELLS)
    for each in work:
        now_s, total_s = now_s + LOOK_S, total_s + each
        hindsight = hindsight.with_observation(now_s, total_s, SLACK_S, rate, outcomes)
    return hindsight


def bursts(count: int, every_s: float, work_s: float) -> list[float]:
    """Work of each tick: `work_s` seconds of it in one tick every `every_s` seconds, otherwise none."""
    looks = round(every_s / LOOK_S)
    return ([work_s] + [0.0] * (looks - 1)) * count


def test_nothing_was_late_where_there_was_enough() -> None:
    assert seen([], 1.0).rate(0.02, 0.02) == 0
    assert seen([2.0] * 3600, 1.2).rate(0.02, 0.02) == 0


def test_bursts_that_come_again_ask_for_what_would_have_done() -> None:
    """40 s of work within one look, of which a rate r takes in 3 r: two by the end of the look, one while
    it may wait, as it has waited for one. At most a hundredth late: r >= 0.99 * 40 / 3."""
    found = seen(bursts(40, 60.0, 40.0), 1.0)
    assert found.own.late_s == pytest.approx(40 * 37, rel=0.2)  # less what is forgotten
    assert found.rate(0.01, 0.01) == pytest.approx(13.2, rel=0.06)
    assert found.rate(0.01, 1.0) == 0


def test_an_engine_that_would_hardly_have_worked_is_not_worth_its_price() -> None:
    """An additional engine would be busy for 3 s of every two minutes, 2.5 %. At a loss of 1 % at least
    3 % are required."""
    found = seen(bursts(40, 120.0, 40.0), 1.0)
    assert found.rate(0.01, 0.01) == 0
    assert found.rate(0.008, 0.008) == pytest.approx(13.2, rel=0.06)


@pytest.mark.parametrize(("count", "asks"), [(1, False), (2, False), (3, True)])
def test_a_habit_is_three_of_late(count: int, asks: bool) -> None:
    assert (seen(bursts(count, 300.0, 40.0), 1.0).rate(0.001, 0.001) > 0) == asks


def test_one_crowd_is_one_burst_however_long_it_lasts() -> None:
    """Ten minutes at five times the load, noise and all."""
    draw = random.Random(4)
    crowd = [2.0] * 300 + [draw.uniform(4, 16) for _ in range(300)] + [2.0] * 300
    found = seen(crowd, 1.5)
    assert found.own.late_s > 0.1 * found.came_s
    assert max(pace.bursts for pace in found.paces) < MIN_BURSTS
    assert found.rate(0.02, 0.02) == 0


def test_a_level_that_is_too_high_all_the_time_is_no_burst() -> None:
    found = seen([4.0] * 1800, 1.0)
    assert found.own.late_s > 0.4 * found.came_s
    assert found.rate(0.02, 0.02) == 0


def test_what_is_over_is_forgotten() -> None:
    found = seen(bursts(20, 120.0, 40.0), 1.0)
    after = seen([1.0] * round(MEMORY_S / LOOK_S), 12.0, found)
    assert after.came_s == pytest.approx(0.37 * found.came_s + 0.63 * MEMORY_S / 2, rel=0.02)
    before, now = (each.paces[bisect_right(RATES, 2.0)].bursts for each in (found, after))
    assert now == pytest.approx(0.37 * before, rel=0.02)


def test_looks_that_failed_are_no_bursts() -> None:
    """Work that arrived between two successful ticks counts as spread evenly over that time."""
    found = seen([1.0] * 100, 1.0)
    for number in range(1, 9):
        now_s, total_s = 200.0 + 300 * number, 100.0 + 150 * number
        found = found.with_observation(now_s, total_s, SLACK_S, 1.0, NOBODY_TELLS)
    assert found.own.late_s == 0


def test_of_what_is_said_to_be_late_it_takes_what_was() -> None:
    """The model predicts 37 s of each 40 s as late; gateways measured a third of the requests as late."""
    work = bursts(40, 60.0, 40.0)
    found = seen(work, 1.0, outcomes=Outcomes(3.0, 1.0))
    assert found.true_part(0.01) == pytest.approx(0.334 / 0.926, rel=0.01)
    assert seen(work, 1.0, outcomes=Outcomes(3.0, 0.0)).rate(0.01, 0.01) == 0
    assert seen(work, 1.0, outcomes=Outcomes(3.0, 3.0)).true_part(0.01) == 1
    assert seen(work, 1.0).true_part(0.01) == 1


def test_what_is_hardly_late_in_truth_is_worth_less() -> None:
    """An additional engine would be busy for 3 s of each minute, 5 %, and 3 % are required. It is not
    worth its price if gateways measured only half as many late requests."""
    work = bursts(40, 60.0, 40.0)
    assert seen(work, 1.0, outcomes=Outcomes(1.0, 0.9)).rate(0.01, 0.01) > 10
    assert seen(work, 1.0, outcomes=Outcomes(1.0, 0.45)).rate(0.01, 0.01) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "restraint"), [(0.0, 1), (1.9, 1), (4.0, 0.5), (5.0, 0.4), (50.0, MOST_CAREFUL)]
)
def test_who_fails_gives_less_away(late: float, restraint: float) -> None:
    """late: of a hundred, where one may be, all the time that is remembered."""
    found = seen([1.0] * 40_000, 2.0, outcomes=Outcomes(100.0, late))
    prior = PRIOR_S / MEMORY_S
    share = (0.01 * late + prior * 0.01) / (1 + prior)
    assert found.late_share(0.01) == pytest.approx(share, rel=0.01)
    expected = min(1.0, max(MOST_CAREFUL, FAILURE * 0.01 / share))
    assert found.restraint(0.01) == pytest.approx(expected, rel=0.01)
    assert expected == pytest.approx(restraint, rel=0.25)


def test_what_comes_while_there_is_none_is_no_burst_and_no_failure() -> None:
    """Ten minutes without any, and then as much as is needed; who waited gets its token late."""
    woken = seen([1.0] * 300, 0.0, outcomes=Outcomes(0.0, 0.0, waiting=300.0))
    assert woken.own == woken.paces[0] == seen([], 0.0).own
    found = seen([1.0] * 300, 2.0, woken, Outcomes(2.0, 1.0))
    assert found.outcomes.late == 0
    assert seen([1.0], 2.0, found, Outcomes(2.0, 1.0)).outcomes.late == 1


def test_nobody_is_careful_who_has_seen_nothing() -> None:
    assert Counterfactual().restraint(0.01) == 1
    assert Counterfactual().late_share(0.01) == 0.01
    assert seen([1.0] * 100, 2.0).restraint(0.0) == 1


def _late_share(arrivals: list[tuple[float, float]], rate: float) -> float:
    """Work in order of arrival; who cannot begin within SLACK_S is set behind, and delays nobody."""
    free_s = late = 0.0
    for at_s, work_s in arrivals:
        begin_s = max(at_s, free_s)
        if begin_s - at_s > SLACK_S:
            late += work_s
        else:
            free_s = begin_s + work_s / rate
    return late / sum(work for _, work in arrivals)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_late_is_about_what_is_when_the_same_comes_one_by_one(seed: int) -> None:
    """Two hours of bursts of 1 to 60 requests within seconds, a quarter of a second of work each."""
    draw = random.Random(seed)
    arrivals: list[tuple[float, float]] = []
    at_s = 0.0
    while at_s < 7200:
        at_s += draw.expovariate(1 / 40)
        count, took_s = draw.randint(1, 60), draw.uniform(2, 10)
        arrivals += [(at_s + draw.random() * took_s, draw.uniform(0.1, 0.4)) for _ in range(count)]
    arrivals.sort()
    looks = [0.0] * (round(7300 / LOOK_S) + 1)
    for at_s, work_s in arrivals:
        looks[int(at_s // LOOK_S)] += work_s
    found = seen(looks, 0.3)
    for rate, pace in zip(RATES, found.paces, strict=True):
        if 0.5 < rate < 4:
            assert pace.late_s / found.came_s == pytest.approx(
                _late_share(arrivals, rate), abs=0.05
            )


def test_rates_are_close_and_reach_far() -> None:
    assert all(b / a == pytest.approx(1.15) for a, b in pairwise(RATES))
    assert RATES[0] <= 0.25
    assert bisect_right(RATES, 300) == len(RATES) - 1
    assert QUIET_S < 60


def test_it_is_written_without_what_waits() -> None:
    found = seen(bursts(40, 60.0, 40.0), 1.0, outcomes=Outcomes(10.0, 9.0))
    back = deserialize(Counterfactual, json.loads(json.dumps(serialize(found.kept()))))
    assert back.rate(0.01, 0.01) == found.rate(0.01, 0.01) > 0
    again = seen(bursts(1, 60.0, 0.0), 1.0, back)
    assert again.own.late_s == pytest.approx(found.own.late_s, rel=0.01)
    assert again.late_share(0.01) == pytest.approx(found.late_share(0.01), rel=0.01)
