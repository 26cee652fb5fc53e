"""Late requests, counted as the difference of a gateway's counters, and the loss that they allow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.by_objectives.outcomes import MOST_LOSS, PRIOR_LATE, Outcomes
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import GatewayReading, Missing

NOTHING = Histogram((1.0, 2.0), (0, 0, 0), 0.0)
OLD = GatewayReading(
    at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
    oldest_wait_s=0.0, arrivals=0, prompt_tokens=0, ended=11, output_tokens=0, attended_tokens=0,
    shed=3, failed=0, late=1, ttft_s=NOTHING, tpot_s=NOTHING,
)  # fmt: skip
NEW = replace(OLD, at_s=2.0, queued=7, in_flight=4, ended=31, shed=5, late=9)


def test_late_is_whose_token_came_late_and_who_was_shed() -> None:
    assert Outcomes.between(OLD, NEW) == Outcomes(22.0, 10.0, 11.0)


@pytest.mark.parametrize("new", [None, Missing("gateway", "ReadTimeout"), OLD])
def test_who_cannot_be_seen_or_began_anew_tells_nothing(
    new: GatewayReading | Missing | None,
) -> None:
    assert Outcomes.between(NEW, new) == Outcomes()
    assert Outcomes.between(None, NEW) == Outcomes()


def test_what_was_seen_fades() -> None:
    assert Outcomes(100.0, 10.0).updated(0.5, Outcomes(20.0, 1.0), is_served=True) == Outcomes(
        70.0, 6.0
    )


def test_who_waited_for_the_first_replica_was_not_late_for_too_few() -> None:
    waited = Outcomes(100.0, 10.0, waiting=25.0)
    after = waited.updated(1.0, Outcomes(20.0, 20.0, waiting=5.0), is_served=True)
    assert after == Outcomes(100.0, 10.0, waiting=5.0)
    more = after.updated(1.0, Outcomes(20.0, 8.0), is_served=True)
    assert more == Outcomes(115.0, 13.0)


def test_requests_that_wait_are_excused_only_if_no_replica_is_ready() -> None:
    seen = Outcomes(20.0, 1.0, waiting=7.0)
    assert Outcomes().updated(1.0, seen, is_served=True).waiting == 0
    idle = Outcomes(waiting=30.0).updated(1.0, seen, is_served=False)
    assert idle == Outcomes(19.0, 0.0, waiting=7.0)


def test_before_any_outcome_the_objective_is_the_allowed_loss() -> None:
    assert Outcomes().allowed_loss(0.99) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("requests", "late", "multiple"),
    [
        # Half of the 1,000 that may be late are planned: twice as many as were late.
        (100_000, 500 - 250, 2.0),
        (100_000, 500, 1.0),
        # More were late than planned, or than allowed: never less than the objective says.
        (100_000, 900, 1.0),
        (100_000, 50_000, 1.0),
        # No request was late: three times, after any number of requests.
        (100_000, 0, MOST_LOSS),
        (10_000_000, 0, MOST_LOSS),
        # Few requests: the prior counts most.
        (100, 0, 1 + 1 / PRIOR_LATE),
    ],
)
def test_allowed_loss_grows_while_fewer_are_late_than_planned(
    requests: float, late: float, multiple: float
) -> None:
    allowed = Outcomes(requests, late).allowed_loss(0.99)
    assert allowed == pytest.approx(multiple * 0.01, rel=0.03)


@given(
    requests=st.floats(0.0, 1e7),
    late=st.floats(0.0, 1e6),
    more=st.floats(0.0, 1e4),
    attainment=st.floats(0.5, 0.9999),
)
def test_more_late_requests_never_allow_more(
    requests: float, late: float, more: float, attainment: float
) -> None:
    before = Outcomes(requests, late).allowed_loss(attainment)
    after = Outcomes(requests, late + more).allowed_loss(attainment)
    assert after <= before
    assert 1 - attainment <= after <= before <= MOST_LOSS * (1 - attainment)


def test_excused_requests_allow_no_more_than_none_late() -> None:
    assert Outcomes(1e6, -50.0).allowed_loss(0.99) == Outcomes(1e6, 0.0).allowed_loss(0.99)
