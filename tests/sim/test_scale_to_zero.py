"""A service at zero: the first request wakes it, and none is lost."""

from itertools import pairwise

import pytest
from pydantic import ValidationError

from penstock.core.scaling.rule import Decision
from penstock.sim.run import run
from penstock.sim.scaler import WAKE_DELAY_S

STARTUP_S, IDLE_AFTER_S = 4.0, 6.0
# Share of a second for the prompt of a request that has an engine to itself.
FIRST_TOKEN_S = 1.0


def test_no_request_is_lost_in_a_thousand_cycles(make_scenario) -> None:
    """About one request in 20 s: most find no engine, as the last engine left 6 s after the last request."""
    quiet = make_scenario(
        rps=0.05, duration_s=40_000.0, min_replicas=0, initial_replicas=1, max_replicas=3,
        startup_s=STARTUP_S, idle_after_s=IDLE_AFTER_S,
    )  # fmt: skip
    [service] = run(quiet, "penstock", 1).services

    decisions = [record.decision for record in service.scaler.records]
    requests = service.gateway.requests
    assert num_wake_ups(decisions) >= 1000
    assert {request.outcome for request in requests} == {"ended"}
    starts = [pod_s for pod_s in service.fleet.pod_ready_s if pod_s]
    longest_s = max(starts) + WAKE_DELAY_S + FIRST_TOKEN_S
    assert max(r.first_token_s - r.arrival_s for r in requests) <= longest_s
    assert decisions[-1].code == "ScaledToZero"


def test_requests_that_came_together_are_answered_by_the_first_engine(make_scenario) -> None:
    burst = make_scenario(
        rps=20.0, duration_s=10.0, min_replicas=0, initial_replicas=0, max_replicas=1,
        startup_s=90.0, idle_after_s=IDLE_AFTER_S,
    )  # fmt: skip
    [service] = run(burst, "penstock", 1).services

    requests = service.gateway.requests
    assert len(requests) > 150
    assert {request.outcome for request in requests} == {"ended"}
    assert len({request.pod for request in requests}) == 1
    first = service.scaler.records[0]
    assert (first.before, first.decision.desired, first.decision.code) == (0, 1, "ScaleUp")


def test_lost_metrics_never_remove_the_last_replica(make_scenario) -> None:
    blind = make_scenario(
        rps=0.0, duration_s=300.0, min_replicas=0, initial_replicas=1, max_replicas=3,
        idle_after_s=IDLE_AFTER_S, faults=[{"kind": "blackout", "from_s": 0, "to_s": 250}],
    )  # fmt: skip
    [service] = run(blind, "penstock", 1).services
    by_time = {record.at_s: record.decision.desired for record in service.scaler.records}
    assert {desired for at_s, desired in by_time.items() if at_s < 250} == {1}
    assert by_time[max(by_time)] == 0


@pytest.mark.parametrize("least", [1, 2])
def test_idle_after_without_min_replicas_zero_is_refused(make_scenario, least: int) -> None:
    with pytest.raises(ValidationError, match="idle_after_s needs min_replicas 0"):
        make_scenario(min_replicas=least, idle_after_s=IDLE_AFTER_S)


def num_wake_ups(decisions: list[Decision]) -> int:
    return sum(not before.desired and bool(after.desired) for before, after in pairwise(decisions))
