"""Late requests, counted as the difference of a gateway's counters."""

from dataclasses import replace

import pytest

from penstock.core.scaling.by_objectives.outcomes import Outcomes
from penstock.core.scaling.signals import GatewayReading, Histogram, Missing

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
    assert Outcomes(100.0, 10.0).after(0.5, Outcomes(20.0, 1.0)) == Outcomes(70.0, 6.0)


def test_who_waited_for_the_first_replica_was_not_late_for_too_few() -> None:
    waited = Outcomes(100.0, 10.0, waiting=25.0)
    after = waited.after(1.0, Outcomes(20.0, 20.0))
    assert after == Outcomes(100.0, 10.0, waiting=5.0)
    assert after.after(1.0, Outcomes(20.0, 8.0)) == Outcomes(115.0, 13.0)
