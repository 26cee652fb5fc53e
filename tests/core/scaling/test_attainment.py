"""Attainment over a sliding hour of the gateways' cumulative counts."""

import pytest

from penstock.core.scaling.attainment import (
    SAMPLE_S,
    WINDOW_S,
    AttainmentWindow,
    budget_left,
    num_within,
)
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import GatewayReading
from penstock.core.spec.objectives import Objectives

BOUNDS = (0.1, 0.2, 0.4)
TTFT, BOTH = Objectives(ttft_s=1.0), Objectives(ttft_s=1.0, tpot_s=0.2)


def reading(ended=0, late=0, shed=0, failed=0, gaps=(0, 0, 0, 0)):
    empty = Histogram(BOUNDS, (0, 0, 0, 0), 0.0)
    return GatewayReading(
        at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
        oldest_wait_s=0.0, arrivals=ended + shed + failed, prompt_tokens=0, ended=ended,
        output_tokens=0, attended_tokens=0, late=late, shed=shed, failed=failed, ttft_s=empty,
        tpot_s=Histogram(BOUNDS, gaps, 0.0),
    )  # fmt: skip


def window(*samples):
    made = AttainmentWindow()
    for now_s, each in samples:
        made = made.updated(now_s, each)
    return made


def test_lost_requests_meet_no_objective():
    after = reading(ended=8, late=1, shed=1, failed=1, gaps=(4, 2, 2, 0))
    found = window((0, reading()), (5, after)).attainment(BOTH)
    assert found == {"ttft": 0.7, "tpot": 0.6}


def test_no_ratio_without_requests_or_objective():
    assert window((0, reading(ended=5))).attainment(BOTH) == {}
    assert window((0, reading(ended=5)), (5, reading(ended=5))).attainment(BOTH) == {}
    assert window((0, reading()), (5, reading(ended=5))).attainment(TTFT) == {"ttft": 1.0}


def test_requests_older_than_the_window_do_not_count():
    bad, good = reading(ended=10, late=10), reading(ended=20, late=10)
    made = window((0, reading()), (SAMPLE_S, bad), (2 * SAMPLE_S, good))
    assert made.attainment(TTFT) == {"ttft": 0.5}
    later_s = WINDOW_S + SAMPLE_S + 1
    assert made.updated(later_s, good).attainment(TTFT) == {"ttft": 1.0}


def test_samples_are_about_a_minute_apart():
    made = window(*((5.0 * number, reading(ended=number)) for number in range(2000)))
    assert len(made.samples) < 1.2 * WINDOW_S / SAMPLE_S
    first_s = made.samples[0][0]
    assert 9995 - WINDOW_S - 2 * SAMPLE_S <= first_s <= 9995 - WINDOW_S


def test_counts_that_restart_begin_a_new_window():
    made = window((0, reading(ended=90, late=90)), (60, reading(ended=5)))
    assert made.attainment(TTFT) == {}


@pytest.mark.parametrize(
    ("bound", "within"), [(0.1, 4), (0.2, 6), (0.3, 7), (0.05, 2), (0.4, 8), (9, 8)]
)
def test_observations_within_a_bound_are_interpolated(bound, within):
    assert num_within(Histogram(BOUNDS, (4, 2, 2, 1), 0.0), bound) == pytest.approx(within)


@pytest.mark.parametrize(
    ("attainment", "target", "left"),
    [(1.0, 0.9, 1.0), (0.95, 0.9, 0.5), (0.9, 0.9, 0.0), (0.8, 0.9, -1.0), (1.0, 1.0, 1.0),
     (0.9, 1.0, 0.0)],
)  # fmt: skip
def test_budget_left(attainment, target, left):
    assert budget_left(attainment, target) == pytest.approx(left)
