"""Tokens, latencies and objectives that one request adds to its service."""

import math

import pytest
from tests.gateway.engine_answers import EVENT
from tests.gateway.stats.recorded_requests import ENGINE, POD, USAGE, close, endpoint, stream, whole
from tests.gateway.support.slots import slot_at

from penstock.core.canary.bins import tpot_bin, ttft_bin
from penstock.core.canary.moments import Moments
from penstock.core.routing.token_estimate import TokenEstimate
from penstock.core.spec.objectives import UNBOUNDED_S, Objectives


def log(seconds):
    return Moments.of([math.log(seconds)])


def test_stream_counts_tokens_latency_and_arm(stats, clock, make):
    record = make()
    stream(record, clock)
    close(record)
    seen = stats.reading(0.0, clock())
    assert (seen.arrivals, seen.prompt_tokens) == (1, 300)
    assert (seen.ended, seen.late, seen.shed, seen.failed) == (1, 0, 0, 0)
    assert (seen.output_tokens, seen.attended_tokens) == (3, 300 + 301 + 302)
    assert (seen.ttft_s.count, seen.ttft_s.total) == (1, 1.5)
    assert (seen.tpot_s.count, seen.tpot_s.total) == (1, 1.0)
    arm = stats.arms()[POD]
    assert (arm.requests, arm.errors, arm.violations, arm.empty_outputs) == (1, 0, 0, 0)
    assert (arm.prompt_tokens, arm.cached_tokens) == (300, 256)
    assert (arm.overall, arm.output) == (log(1.5), log(3))
    assert arm.ttft[ttft_bin(300, 0)] == log(0.5)  # from sending to the engine
    assert arm.tpot[tpot_bin(300, 0)] == log(1.0)
    assert arm.tenants == {}


def test_tokens_are_estimated_without_usage(stats, clock, make):
    """Each event is a token, except for the first one of a chat. The prompt is estimated from its bytes."""
    for chat, tokens in ((False, 3), (True, 2)):
        before = stats.output_tokens
        record = make(chat=chat)
        with record.in_flight(ENGINE, slot_at(ENGINE)):
            for chunk in (EVENT, EVENT, EVENT, b"data: [DONE]\n\n"):
                record.add_chunk(chunk)
        close(record)
        assert stats.output_tokens - before == tokens
    assert stats.attended_tokens == 300 + 301 + 302 + 300 + 301
    assert stats.token_estimates.get("") == TokenEstimate()
    arm = stats.arms()[POD]
    assert (arm.requests, arm.prompt_tokens, arm.cached_tokens) == (2, 0, 0)
    assert arm.ttft[ttft_bin(300, 0)].n == 2


def test_usage_corrects_the_token_estimate(stats, clock, make):
    record = make()
    with record.in_flight(ENGINE, slot_at(ENGINE)):
        record.add_chunk(b'data: {"usage":{"prompt_tokens":600,"completion_tokens":1}}\n\n')
    close(record)
    assert stats.token_estimates.get("") == TokenEstimate().observe(1200, 600)
    assert stats.attended_tokens == 600


def test_a_prompt_is_estimated_by_the_answers_to_its_tenant(stats, clock, make):
    for _ in range(100):
        for client, tokens in (("own", 300), ("other", 1200)):
            record = make(client=client)
            with record.in_flight(ENGINE, slot_at(ENGINE)):
                record.add_chunk(
                    b'data: {"usage":{"prompt_tokens":%d,"completion_tokens":1}}\n\n' % tokens
                )
            close(record)
    assert make(client="own").prompt_tokens == 300
    assert make(client="other").prompt_tokens > 900


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "late", "violations"),
    [
        (1.5, 1.0, 0, 0),
        (1.49, 1.0, 1, 1),
        (1.5, 0.99, 0, 1),
        (1.49, 0.99, 1, 1),
        (1.49, UNBOUNDED_S, 1, 1),
        (1.5, UNBOUNDED_S, 0, 0),
        (UNBOUNDED_S, 0.99, 0, 1),
        (UNBOUNDED_S, 1.0, 0, 0),
    ],
)
def test_objectives_of_a_stream(stats, clock, make, ttft_s, tpot_s, late, violations):
    stats.objectives = Objectives(ttft_s, tpot_s)
    record = make()
    stream(record, clock)
    close(record)
    assert (stats.late, stats.arms()[POD].violations) == (late, violations)


@pytest.mark.parametrize(
    ("tokens", "ttft_s", "tpot_s", "late"),
    [
        (11, 0.5, 0.1, 0),
        (11, 0.5, 0.09, 1),
        (11, 0.49, 0.1, 1),
        (0, 1.5, 1.0, 0),
        (1, 1.4, 9.0, 1),
        (1, 1.4, UNBOUNDED_S, 1),  # of one token, so it took no further time
        (11, 0.1, UNBOUNDED_S, 0),
        (11, UNBOUNDED_S, 0.01, 0),
    ],
)
def test_objectives_of_a_complete_response(stats, clock, make, tokens, ttft_s, tpot_s, late):
    """A complete response may take TTFT plus TPOT for each further token until its first byte."""
    stats.objectives = Objectives(ttft_s, tpot_s)
    record = make(stream=False)
    whole(record, clock, USAGE % tokens)
    close(record)
    seen, arm = stats.reading(0.0, clock()), stats.arms()[POD]
    assert (seen.ended, seen.late, arm.violations) == (1, late, late)
    assert (seen.ttft_s.count, seen.tpot_s.count, arm.overall) == (0, 0, log(1.5))
    assert not any(moments.n for moments in (*arm.ttft, *arm.tpot))
    assert (arm.requests, arm.prompt_tokens, arm.cached_tokens) == (1, 300, 256)


def test_time_lost_by_an_earlier_engine_is_no_violation_of_the_next(stats, clock, make):
    stats.objectives = Objectives(1.0, 1.0)
    record = make()
    clock.now_s += 5.0
    with record.in_flight(endpoint("other"), slot_at(endpoint("other"))):
        clock.now_s += 5.0
    stream(record, clock, queued_s=0.25, first_s=0.5)
    close(record)
    assert stats.late == 1  # as the client saw it
    arm = stats.arms()[POD]
    assert (arm.violations, arm.overall) == (0, log(0.75))


@pytest.mark.parametrize(
    ("blocked_s", "is_timed"),
    [((), True), ((0.05,) * 9, True), ((0.1, 0.1), True), ((0.1, 0.11), False), ((2.0,), False)],
)
def test_tpot_is_not_counted_when_the_client_blocks_writes(stats, clock, make, blocked_s, is_timed):
    """Up to a tenth of the stream's 2 s may be spent waiting for the client."""
    stats.objectives = Objectives(9.0, 0.5)
    record = make()
    stream(record, clock)
    for seconds in blocked_s:
        record.add_write_time(seconds)
    close(record)
    arm = stats.arms()[POD]
    assert stats.reading(0.0, clock()).tpot_s.count == is_timed
    assert arm.tpot[tpot_bin(300, 0)].n == is_timed
    assert (arm.requests, arm.violations) == (1, is_timed)


def test_single_token_violates_no_tpot_objective(stats, clock, make):
    stats.objectives = Objectives(9.0, 0.5)
    record = make()
    stream(record, clock, gaps_s=())
    close(record)
    assert (stats.late, stats.arms()[POD].violations) == (0, 0)


def test_complete_response_in_parts_has_no_tpot(stats, clock, make):
    stats.objectives = Objectives(1.0, 0.1)
    record = make(stream=False)
    with record.in_flight(ENGINE, slot_at(ENGINE)):
        clock.now_s += 0.5
        record.start_response(is_stream=False)
        record.add_chunk(b"{")
        clock.now_s += 5.0
        record.add_chunk(USAGE[1:] % 3)
    close(record)
    assert (stats.late, stats.arms()[POD].violations) == (0, 0)
    assert stats.reading(0.0, clock()).tpot_s.count == 0


@pytest.mark.parametrize(("gaps_s", "timed"), [((), 0), ((1.0,), 1)])
def test_single_token_has_no_tpot(stats, clock, make, gaps_s, timed):
    record = make()
    stream(record, clock, gaps_s=gaps_s)
    close(record)
    seen = stats.reading(0.0, clock())
    assert (seen.ttft_s.count, seen.tpot_s.count) == (1, timed)


def test_counts_by_tenant(stats, clock, make):
    record = make(tenant="acme")
    stream(record, clock)
    close(record)
    (tenant,) = stats.arms()[POD].tenants.values()
    assert (tenant.requests, tenant.errors) == (1, 0)
    assert (tenant.ttft, tenant.tpot) == (log(0.5), log(1.0))
