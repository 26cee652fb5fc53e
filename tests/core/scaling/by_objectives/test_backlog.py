"""A backlog stands if it never was empty for as long as a pod takes to start."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.by_objectives.backlog import Backlog, Waiting
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
)

SPAN_S, PERIOD_S = 60.0, 2.0
EMPTY = Histogram((1.0,), (0, 0), 0.0)
ENGINE = EngineReading(
    at_s=0.0, running=0, waiting=0, kv_usage=0.0, kv_capacity_tokens=1000, prefill_tokens_pending=0,
    prompt_tokens=0, cached_tokens=0, output_tokens=0, steps=0, finished=0,
    output_tokens_finished=0, preemptions=0, ttft_s=EMPTY, itl_s=EMPTY,
)  # fmt: skip
GATEWAY = GatewayReading(
    at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
    oldest_wait_s=0.0, arrivals=0, prompt_tokens=0, ended=0, output_tokens=0, attended_tokens=0,
    late=0, shed=0, failed=0, ttft_s=EMPTY, tpot_s=EMPTY,
)  # fmt: skip


def observed(
    now_s: float, *engines: tuple[int, int], gateway: GatewayReading | Missing | None = None
) -> Observation:
    """engines: prompt tokens that are not computed, and requests that wait."""
    pods = tuple(
        PodView(
            f"pod-{i}", "Ready", 0.0, 0.0,
            replace(ENGINE, prefill_tokens_pending=tokens, waiting=requests),
        )
        for i, (tokens, requests) in enumerate(engines)
    )  # fmt: skip
    return Observation(now_s, pods, len(pods), gateway)


def backlog_of(waiting: list[int]) -> Backlog:
    """waiting: requests every two seconds."""
    backlog = Backlog()
    for n, requests in enumerate(waiting):
        backlog = backlog.updated(observed(PERIOD_S * n, (100 * requests, requests)), SPAN_S)
    return backlog


def test_what_waits_at_the_gateway_and_in_engines_is_added() -> None:
    gateway = replace(GATEWAY, queued=7, queued_prompt_tokens=700)
    seen = observed(5.0, (30, 2), (40, 0), gateway=gateway)
    assert Waiting.of(seen) == Waiting(5.0, 770, 9)


@pytest.mark.parametrize("gateway", [None, Missing("gateway", "timeout")])
def test_engines_alone_count_without_numbers_of_the_gateway(gateway: Missing | None) -> None:
    assert Waiting.of(observed(5.0, (30, 2), gateway=gateway)) == Waiting(5.0, 30, 2)


@pytest.mark.parametrize("pause", [0, 5, 29])
def test_queue_that_was_empty_once_does_not_stand(pause: int) -> None:
    waiting = [50] * 30
    waiting[pause] = 0
    assert backlog_of(waiting).standing(SPAN_S) is None
    assert backlog_of([50] * 31).standing(SPAN_S) == Waiting(60.0, 5000, 50)


def test_pause_before_the_span_is_forgotten() -> None:
    assert backlog_of([0] * 100 + [4] * 30).standing(SPAN_S) is None
    assert backlog_of([0] * 100 + [4] * 31).standing(SPAN_S) == Waiting(260.0, 400, 4)


def test_nothing_stands_before_the_span_was_observed() -> None:
    enough = round(SPAN_S / PERIOD_S) + 1
    assert backlog_of([9] * (enough - 1)).standing(SPAN_S) is None
    assert backlog_of([9] * enough).standing(SPAN_S) == Waiting(60.0, 900, 9)


def test_prompt_tokens_stand_without_waiting_requests() -> None:
    """An engine that prefills without a pause has running requests only."""
    backlog = Backlog()
    for n in range(40):
        backlog = backlog.updated(observed(PERIOD_S * n, (3000 + n, 0)), SPAN_S)
    assert backlog.standing(SPAN_S) == Waiting(78.0, 3009, 0)


@given(waiting=st.lists(st.integers(0, 20), min_size=1, max_size=80))
def test_least_of_the_span_by_hand(waiting: list[int]) -> None:
    recent = waiting[-round(SPAN_S / PERIOD_S) - 1 :]
    standing = backlog_of(waiting).standing(SPAN_S)
    least = min(recent) if len(recent) > SPAN_S / PERIOD_S else 0
    assert (standing.requests if standing else 0) == least
