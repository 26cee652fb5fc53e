"""Statistics that one request adds to its service, with a manual clock."""

import math

import pytest
from gateway.engine_answers import EVENT
from gateway.recorded_requests import ENGINE, POD, USAGE, Clock, stream, whole

from penstock.core.canary.arm_counter import ArmCounter
from penstock.core.canary.evidence import tpot_bin, ttft_bin
from penstock.core.canary.moments import Moments
from penstock.core.routing.charge import Ending
from penstock.core.routing.engine_load import EngineLoad, Placement, Waiting
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.prefill_throughput import PrefillThroughput
from penstock.core.routing.token_estimate import TokenEstimate
from penstock.core.spec.objectives import UNBOUNDED_S, Objectives
from penstock.gateway.adapter_stats import AdapterStats
from penstock.gateway.openai import RequestError
from penstock.gateway.request_record import RequestRecord
from penstock.gateway.reservation import Reservation
from penstock.gateway.service_stats import ServiceStats


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stats():
    return ServiceStats()


@pytest.fixture
def make(stats, clock):
    def make(*, stream=True, chat=False, **more):
        return RequestRecord(
            stats, clock, clock.now_s, 1200, is_stream=stream, is_chat=chat, **more
        )

    return make


def close(record, ending=Ending.ANSWERED, serving=()):
    record.end.ending = ending
    return record.close(serving)


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
        with record.in_flight(ENGINE, None):
            for chunk in (EVENT, EVENT, EVENT, b"data: [DONE]\n\n"):
                record.add_chunk(chunk)
        close(record)
        assert stats.output_tokens - before == tokens
    assert stats.attended_tokens == 300 + 301 + 302 + 300 + 301
    assert stats.token_estimate == TokenEstimate()
    arm = stats.arms()[POD]
    assert (arm.requests, arm.prompt_tokens, arm.cached_tokens) == (2, 0, 0)
    assert arm.ttft[ttft_bin(300, 0)].n == 2


def test_usage_corrects_the_token_estimate(stats, clock, make):
    record = make()
    with record.in_flight(ENGINE, None):
        record.add_chunk(b'data: {"usage":{"prompt_tokens":600,"completion_tokens":1}}\n\n')
    close(record)
    assert stats.token_estimate == TokenEstimate().observe(1200, 600)
    assert stats.attended_tokens == 600


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
    with record.in_flight(endpoint("other"), None):
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
    with record.in_flight(ENGINE, None):
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


@pytest.mark.parametrize(
    ("ending", "ended", "failed", "shed", "errors"),
    [
        (Ending.ANSWERED, 1, 0, 0, 0),
        (Ending.REFUSED, 0, 0, 0, 0),
        (Ending.UNSUPPORTED, 0, 0, 0, 0),
        (Ending.ROUTE_TIMEOUT, 0, 0, 0, 0),
        (Ending.NO_FIRST_BYTE, 0, 1, 0, 1),
        (Ending.TRUNCATED, 0, 1, 0, 1),
        (Ending.TOTAL_TIMEOUT, 0, 1, 0, 0),
        (Ending.SHUTDOWN, 0, 1, 0, 0),
        (Ending.NO_ENGINE, 0, 0, 1, 0),
        (None, 0, 1, 0, 0),  # a defect of the gateway
    ],
)
def test_outcome_by_ending(stats, clock, make, ending, ended, failed, shed, errors):
    record = make()
    stream(record, clock)
    close(record, ending)
    assert (stats.ended, stats.failed, stats.shed) == (ended, failed, shed)
    assert stats.arm(POD).snapshot().errors == errors


@pytest.mark.parametrize(
    ("status", "failed", "shed"), [(404, 0, 0), (424, 0, 0), (500, 1, 0), (502, 0, 1), (503, 0, 1)]
)
def test_outcome_of_an_error_of_the_gateway_without_an_engine(stats, make, status, failed, shed):
    record = make()
    record.end.note_rejection(RequestError(status, "no"))
    record.close()
    assert (stats.ended, stats.failed, stats.shed) == (0, failed, shed)
    assert stats.arms() == {}


def test_error_of_the_gateway_after_a_failed_attempt_is_that_failure(stats, make):
    record = make()
    record.end.note_failed_attempt(endpoint("a"), Ending.CONNECT, is_serving=True)
    record.end.note_rejection(RequestError(503, "no"))
    record.close({Side("r1")})
    assert (stats.failed, stats.shed) == (1, 0)
    assert stats.arms()["default/a"].errors == 1


@pytest.mark.parametrize("code", [499, 500])
def test_error_event_is_the_engines_failure_from_code_500(stats, clock, make, code):
    record = make()
    with record.in_flight(ENGINE, None):
        record.add_chunk(EVENT)
        record.add_chunk(b'data: {"error": {"code": %d}}\n\n' % code)
    close(record, Ending.ERROR_EVENT if record.has_engine_error else Ending.ANSWERED)
    failed = int(code == 500)
    assert (stats.failed, stats.ended) == (failed, 1 - failed)
    assert stats.arms()[POD].errors == failed
    assert stats.arms()[POD].empty_outputs == 0


def test_refusal_in_a_stream_is_no_empty_answer(stats, make):
    """An engine may find out that a request is invalid after it has begun to answer."""
    record = make()
    with record.in_flight(ENGINE, None):
        record.add_chunk(b'data: {"error": {"code": 400}}\n\n')
    close(record)
    assert (stats.arms()[POD].requests, stats.arms()[POD].empty_outputs) == (1, 0)


def test_truncated_response_is_an_error_of_its_tenant(stats, clock, make):
    record = make(tenant="acme")
    stream(record, clock)
    close(record, Ending.TRUNCATED)
    assert (stats.failed, stats.ended) == (1, 0)
    assert [each.errors for each in stats.arm(POD).snapshot().tenants.values()] == [1]


def endpoint(name, revision="r1"):
    return Endpoint(f"default/{name}", "10.0.0.1:8000", revision)


@pytest.mark.parametrize(
    ("is_serving", "serving", "errors"),
    [
        (True, ["r1"], {"default/a": 1, "default/b": 1}),
        (True, ["r1", "r2"], {}),
        (False, ["r1"], {}),
    ],
)
def test_each_engine_is_charged_a_failure_once_per_request(
    stats, make, is_serving, serving, errors
):
    record = make(tenant="acme")
    for name in ("a", "b", "a"):
        with record.in_flight(endpoint(name), None):
            pass
        record.end.note_failed_attempt(endpoint(name), Ending.RESET, is_serving=is_serving)
    close(record, Ending.RESET, {Side(revision) for revision in serving})
    arms = stats.arms()
    assert {pod: arm.errors for pod, arm in arms.items()} == errors
    assert all(arm.tenants["acme"].errors == 1 for arm in arms.values())
    assert stats.failed == 1


@pytest.mark.parametrize(
    ("ending", "errors"), [(Ending.ANSWERED, 1), (Ending.REFUSED, 1), (Ending.UNSUPPORTED, 0)]
)
def test_status_about_the_request_is_no_answer_that_blames_another_side(
    stats, make, ending, errors
):
    """Its deadline may have passed before the second engine could fail too."""
    record = make(stream=False)
    with record.in_flight(endpoint("c", "r2"), None):
        pass
    record.end.note_failed_attempt(endpoint("c", "r2"), Ending.ERROR, is_serving=True)
    with record.in_flight(ENGINE, None):
        record.start_response(is_stream=False)
        record.add_chunk(b"{}")
    close(record, ending, {Side("r1"), Side("r2")})
    assert stats.arm("default/c").snapshot().errors == errors


EMPTY, TEXT = b'{"choices":[{"text":""}]}', b'{"choices":[{"text":"a"}]}'
CANARY = [endpoint("c", "r2"), endpoint("d", "r2")]


@pytest.mark.parametrize(
    ("key", "answers", "empty"),
    [
        (None, [EMPTY, EMPTY, EMPTY], 3),
        (b"key", [EMPTY, EMPTY, EMPTY], 1),
        (b"key", [TEXT, EMPTY, EMPTY], 0),
    ],
)
def test_empty_answers_of_a_session_count_with_its_first_one_on_a_side(
    stats, make, key, answers, empty
):
    """A client that knows its arm could fail it. The first side's answer is none of the second's."""
    requests = [(ENGINE, TEXT), *((CANARY[n % 2], body) for n, body in enumerate(answers))]
    for engine, body in requests:
        record = make(stream=False, key=key)
        with record.in_flight(engine, None):
            record.start_response(is_stream=False)
            record.add_chunk(body)
        close(record)
    arms = stats.arms()
    assert sum(arms[each.pod].empty_outputs for each in CANARY) == empty
    assert sum(arms[each.pod].requests for each in CANARY) == 3
    assert arms[POD].empty_outputs == 0


def test_empty_answers_of_a_session_count_with_its_first_one_of_an_adapters_version(make):
    adapter = AdapterStats(lambda: None)
    adapter.arm = ArmCounter()
    for body in (TEXT, EMPTY, EMPTY):
        record = make(stream=False, key=b"key", adapter=adapter)
        with record.in_flight(ENGINE, None):
            record.start_response(is_stream=False)
            record.add_chunk(body)
        close(record)
    arm = adapter.arm.snapshot()
    assert (arm.requests, arm.empty_outputs) == (3, 0)


def test_first_answers_of_sides_that_are_gone_are_dropped(stats):
    assert stats.first_answers[Side("r1")].add(b"key")
    assert stats.first_answers[Side("r2")].add(b"key")
    stats.keep_only({POD: Side("r1")})
    assert not stats.first_answers[Side("r1")].add(b"key")
    assert stats.first_answers[Side("r2")].add(b"key")


def test_counts_by_tenant(stats, clock, make):
    record = make(tenant="acme")
    stream(record, clock)
    close(record)
    (tenant,) = stats.arms()[POD].tenants.values()
    assert (tenant.requests, tenant.errors) == (1, 0)
    assert (tenant.ttft, tenant.tpot) == (log(0.5), log(1.0))


def test_queued_and_in_flight_requests(stats, clock, make):
    """Requests are counted only while they wait or run."""
    first = make()
    clock.now_s += 1.0
    second = make()
    clock.now_s += 2.0
    with first.queued(), second.queued():
        seen = stats.reading(7.0, clock())
        assert (seen.at_s, seen.queued, seen.queued_prompt_tokens) == (7.0, 2, 600)
        assert seen.oldest_wait_s == 3.0
    with first.in_flight(ENGINE, None), second.in_flight(ENGINE, None):
        first.add_chunk(EVENT)
        seen = stats.reading(7.0, clock())
        assert (seen.in_flight, seen.in_flight_prefill_tokens) == (2, 300)
    seen = stats.reading(7.0, clock())
    assert (seen.queued, seen.in_flight, seen.in_flight_prefill_tokens) == (0, 0, 0)
    assert (seen.queued_prompt_tokens, seen.oldest_wait_s) == (0, 0.0)


def test_requests_ahead_and_open_at_the_engine(stats, make):
    """Failed attempts and ended requests do not count."""
    for _ in range(2):
        with make().in_flight(ENGINE, None):
            pass
    first, second = make(), make()
    with first.in_flight(ENGINE, None):
        first.add_chunk(EVENT)
        with second.in_flight(ENGINE, None):
            assert stats.count_sent(POD) == (1, 2)
            stats.count_first_byte(POD)
            assert stats.count_end(POD) == 2
            assert stats.count_sent("default/other") == (0, 0)
        assert stats.count_sent(POD) == (0, 1)
        stats.count_first_byte(POD)
        assert stats.count_end(POD) == 1
    assert stats.count_sent(POD) == (0, 0)


@pytest.fixture
async def slot(clock):
    """An engine that computes 1,000 tokens a second, a request's slot at it, and what is freed."""
    load = EngineLoad(
        pod=POD, kv_capacity_tokens=1 << 40, throughput=PrefillThroughput(1000.0, 1.0)
    )
    waiting = Waiting("0", clock(), clock() + 1.0, 300.0, 556.0)
    freed = []
    reservation = Reservation(
        Endpoint(POD, "10.0.0.1:8000", "r1"),
        Placement(load, waiting, clock()),
        lambda: freed.append(1),
    )
    return load, reservation, freed


async def test_first_token_frees_the_prefill_work_and_updates_the_throughput(slot, clock, make):
    load, reservation, freed = slot
    before, record = load.throughput, make()
    with record.in_flight(ENGINE, reservation):
        assert (load.prefill_tokens, freed) == (300.0, [])
        clock.now_s += 0.5
        record.start_response(is_stream=True)
        record.add_chunk(EVENT)
        assert (load.prefill_tokens, load.kv_tokens, freed) == (0.0, 556.0, [1])
        assert load.throughput == before.after_first_token(300.0, 0.5)
        record.add_chunk(EVENT)
        assert freed == [1]
    assert (load.kv_tokens, freed) == (0.0, [1, 1])


async def test_error_event_does_not_update_the_throughput(slot, clock, make):
    load, reservation, freed = slot
    before, record = load.throughput, make()
    with record.in_flight(ENGINE, reservation):
        clock.now_s += 0.5
        record.start_response(is_stream=True)
        record.add_chunk(b'data: {"error": {"code": 400}}\n\n')
        assert (load.throughput, load.prefill_tokens, freed) == (before, 300.0, [])
    assert (load.throughput, load.prefill_tokens, freed) == (before, 0.0, [1])


async def test_prefill_work_of_a_complete_response_is_freed_after_its_predicted_time(
    slot, until, make
):
    load, reservation, freed = slot
    before, record = load.throughput, make(stream=False)
    with record.in_flight(ENGINE, reservation):
        assert load.prefill_tokens == 300.0
        await until(lambda: freed)
        assert (load.prefill_tokens, load.kv_tokens) == (0.0, 556.0)
        record.start_response(is_stream=False)
        record.add_chunk(USAGE % 3)
        assert freed == [1]
    assert (load.throughput, load.kv_tokens, freed) == (before, 0.0, [1, 1])


async def test_release_cancels_the_prefill_timer(slot, make):
    load, reservation, freed = slot
    with make(stream=False).in_flight(ENGINE, reservation):
        timer = reservation._timer
        assert timer is not None
    assert timer.cancelled()
    assert (load.prefill_tokens, freed) == (0.0, [1])


async def test_prefill_work_is_freed_at_once_at_unknown_throughput(slot, make):
    load, reservation, freed = slot
    load.throughput = PrefillThroughput()
    with make(stream=False).in_flight(ENGINE, reservation):
        assert (load.prefill_tokens, reservation._timer, freed) == (0.0, None, [1])
