"""Which pauses are silences, and for how long they are waited out."""

import random
from itertools import pairwise

import pytest

from penstock.core.scaling.by_objectives.idle_gap import (
    LONGEST_S,
    MIN_DUE_REQUESTS,
    SHARE,
    SHORTEST_S,
    IdleGap,
)

PERIOD_S = 2.0


def watched(rates: list[tuple[float, float]], draw: random.Random | None = None) -> list[IdleGap]:
    """rates: (for so many seconds, requests/s). After each look; evenly, or drawn one by one."""
    silence, now_s, came, seen = IdleGap(), 0.0, 0.0, []
    for duration_s, rate in rates:
        for _ in range(round(duration_s / PERIOD_S)):
            now_s += PERIOD_S
            if draw is None:
                arrivals = int(came + rate * PERIOD_S) - int(came)
            else:
                arrivals = sum(draw.random() < rate * PERIOD_S / 100 for _ in range(100))
            came += rate * PERIOD_S
            silence = silence.with_interval(now_s, arrivals, is_waiting=False)
            seen.append(silence)
    return seen


def silent_s(rates: list[tuple[float, float]], draw: random.Random | None = None) -> float:
    """Total duration of idle gaps, in seconds."""
    return PERIOD_S * sum(
        silence.lasts(PERIOD_S * (index + 1)) for index, silence in enumerate(watched(rates, draw))
    )


@pytest.mark.parametrize("hours", [1, 2, 4, 8])
def test_a_load_is_waited_for_a_quarter_of_its_time_at_most_an_hour(hours: float) -> None:
    lasted_s = silent_s([(hours * 3600, 10.0), (7200, 0.0)])
    longest_s = min(LONGEST_S, SHARE * hours * 3600)
    # For the first ten to twenty minutes the usual load is unknown, so they do not count.
    assert longest_s - SHARE * 1200 <= lasted_s + SHORTEST_S <= longest_s


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0, 10.0])
def test_what_comes_one_by_one_is_never_silent(rate: float, seed: int) -> None:
    assert silent_s([(6 * 3600, rate)], random.Random(seed)) == 0.0


def test_a_load_that_goes_by_and_by_is_not_waited_for() -> None:
    ending = [(600, 10.0 * 0.6**step) for step in range(20)]
    assert silent_s([(7200, 10.0), *ending, (7200, 0.0)]) == 0.0


def test_rounds_with_pauses_between_them_are_waited_for_no_longer_than_rounds_allow() -> None:
    """A thousand requests within ten seconds, every three minutes."""
    assert silent_s([(10, 100.0), (170, 0.0)] * 60) == 0.0


def test_who_waits_is_no_silence() -> None:
    """Waiting requests are no idle gap: all clients of a closed loop may wait at once and send nothing."""
    silence = watched([(7200, 10.0)])[-1]
    for look in range(300):
        silence = silence.with_interval(7200 + PERIOD_S * (look + 1), 0, is_waiting=True)
        assert not silence.lasts(7200 + PERIOD_S * (look + 1))
    assert silence.rate == pytest.approx(10.0, rel=0.01)


def test_what_comes_back_is_the_load_that_was_there() -> None:
    before, *_, after = watched([(7200, 10.0), (1200, 0.0), (2, 10.0)])[3599:]
    assert after.rate == before.rate
    assert after.since_s == before.since_s
    assert watched([(7200, 10.0), (3600, 0.0), (2, 10.0)])[-1].rate < 0.5


def test_the_time_of_a_load_is_that_of_at_least_half_of_it() -> None:
    rates = [silence.since_s for silence in watched([(7200, 2.0), (7200, 10.0), (7200, 6.0)])]
    assert all(old <= new for old, new in pairwise(rates))
    assert 7200 < rates[-1] < 7200 + 600


def test_few_requests_stay_away_by_chance() -> None:
    """At one request in ten seconds, three minutes without any may be chance; four are an idle gap."""
    assert MIN_DUE_REQUESTS / 0.1 == 200
    assert silent_s([(7200, 0.1), (190, 0.0)]) == 0.0
    assert silent_s([(7200, 0.1), (240, 0.0)]) > 0.0
