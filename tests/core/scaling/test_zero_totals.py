"""Totals of scale to zero: hours saved, wake-ups, and what they cost in time to first token."""

from dataclasses import replace

import pytest

from penstock.core.scaling.idle import GatewayDemand, IdleInputs, IdleRule, IdleState
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.zero_totals import ZeroTotals, describe

STARTUP_S = 120.0


def totals_of(*steps: tuple[float, int, int]) -> ZeroTotals:
    """Totals after decisions, each (time in s, provisioned replicas, open requests)."""
    rule, state = IdleRule(10.0), IdleState()
    for now_s, provisioned, num_open in steps:
        gateways = {"gw-0": GatewayDemand(1.0, 0, num_open)}
        inputs = IdleInputs(Observation(now_s, (), provisioned), gateways)
        decision, state = rule.decide(inputs, state)
    return decision.totals


def test_the_first_decision_has_seen_nothing() -> None:
    assert totals_of((5.0, 0, 0)) == ZeroTotals()
    assert list(describe(ZeroTotals(), 3.0)) == []


def test_time_counts_by_what_was_there_since_the_last_decision() -> None:
    steps = (0.0, 1, 0), (100.0, 1, 0), (400.0, 0, 0), (450.0, 0, 0)
    assert totals_of(*steps) == ZeroTotals(watched_s=450.0, zero_s=50.0)


def test_a_wake_up_counts_once_when_it_has_a_replica() -> None:
    """A quota may leave none: then the next decisions ask for it again."""
    asked = (0.0, 0, 0), (10.0, 0, 1), (12.0, 0, 1)
    assert totals_of(*asked).wake_ups == 0
    woken = totals_of(*asked, (14.0, 1, 1), (16.0, 1, 1))
    assert woken == ZeroTotals(watched_s=16.0, zero_s=14.0, wake_ups=1, waited_s=STARTUP_S)
    again = totals_of(*asked, (14.0, 1, 1), (30.0, 0, 0), (40.0, 1, 1))
    assert (again.wake_ups, again.waited_s) == (2, 2 * STARTUP_S)


def test_a_replica_that_a_rollout_starts_is_no_wake_up() -> None:
    rule, state = IdleRule(10.0), IdleState()
    for now_s, provisioned in ((0.0, 0), (2.0, 0), (4.0, 1)):
        gateways = {"gw-0": GatewayDemand(1.0, 0, 0)}
        inputs = IdleInputs(Observation(now_s, (), provisioned), gateways, is_rolling_out=True)
        decision, state = rule.decide(inputs, state)
    assert decision.totals == ZeroTotals(watched_s=4.0, zero_s=4.0)


HALF = ZeroTotals(watched_s=7200.0, zero_s=3600.0, wake_ups=4, waited_s=168.0)


@pytest.mark.parametrize(
    ("totals", "price", "sentences"),
    [
        (
            HALF, None,
            [
                "Scale to zero saves 12.0 replica hours a day: of the last 2.0 h, the service was at zero "
                "for 1.0 h.",
                "It costs 48.0 wake-ups a day: the first tokens of the 4 so far came 168 s later, 42 s each.",
            ],
        ),
        (
            replace(HALF, watched_s=3540.0, zero_s=600.0), 3.5,
            [
                "In the last 59 min, the service was at zero for 10 min; what a day at this rate saves is "
                "told after an hour.",
            ],
        ),
        (
            replace(HALF, wake_ups=0, waited_s=0.0), 3.5,
            [
                "Scale to zero saves 12.0 replica hours a day, at a price of 42.00: of the last 2.0 h, the "
                "service was at zero for 1.0 h.",
                "It has cost nothing, as no request has woken the service.",
            ],
        ),
    ],
)  # fmt: skip
def test_savings_and_cost_in_words(
    totals: ZeroTotals, price: float | None, sentences: list[str]
) -> None:
    assert list(describe(totals, price)) == sentences
