"""Outcomes, errors and first answers that one request adds by its ending."""

import pytest
from tests.gateway.engine_answers import EVENT
from tests.gateway.stats.recorded_requests import ENGINE, POD, close, endpoint, stream
from tests.gateway.support.slots import slot_at

from penstock.core.canary.arm import ArmCounter
from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Side
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.stats.adapter_stats import AdapterStats


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
    with record.in_flight(ENGINE, slot_at(ENGINE)):
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
    with record.in_flight(ENGINE, slot_at(ENGINE)):
        record.add_chunk(b'data: {"error": {"code": 400}}\n\n')
    close(record)
    assert (stats.arms()[POD].requests, stats.arms()[POD].empty_outputs) == (1, 0)


def test_truncated_response_is_an_error_of_its_tenant(stats, clock, make):
    record = make(tenant="acme")
    stream(record, clock)
    close(record, Ending.TRUNCATED)
    assert (stats.failed, stats.ended) == (1, 0)
    assert [each.errors for each in stats.arm(POD).snapshot().tenants.values()] == [1]


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
        with record.in_flight(endpoint(name), slot_at(endpoint(name))):
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
    with record.in_flight(endpoint("c", "r2"), slot_at(endpoint("c", "r2"))):
        pass
    record.end.note_failed_attempt(endpoint("c", "r2"), Ending.ERROR, is_serving=True)
    with record.in_flight(ENGINE, slot_at(ENGINE)):
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
        with record.in_flight(engine, slot_at(engine)):
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
        with record.in_flight(ENGINE, slot_at(ENGINE)):
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
