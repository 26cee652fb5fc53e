"""Requests that wait or run, and their slots at engines."""

import pytest
from tests.gateway.engine_answers import EVENT
from tests.gateway.stats.recorded_requests import ENGINE, POD, USAGE
from tests.gateway.support.slots import slot_at
from tests.support.engine_models import model_of

from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.engines import Engines
from penstock.core.admission.placement import Placement
from penstock.core.engine_time.first_token import FirstTokenModel, PromptWork
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.gateway.admission.reservation import Reservation


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
    with first.in_flight(ENGINE, slot_at(ENGINE)), second.in_flight(ENGINE, slot_at(ENGINE)):
        first.add_chunk(EVENT)
        seen = stats.reading(7.0, clock())
        assert (seen.in_flight, seen.in_flight_prefill_tokens) == (2, 300)
    seen = stats.reading(7.0, clock())
    assert (seen.queued, seen.in_flight, seen.in_flight_prefill_tokens) == (0, 0, 0)
    assert (seen.queued_prompt_tokens, seen.oldest_wait_s) == (0, 0.0)


def test_requests_ahead_and_open_at_the_engine(stats, make):
    """Failed attempts and ended requests do not count."""
    for _ in range(2):
        with make().in_flight(ENGINE, slot_at(ENGINE)):
            pass
    first, second = make(), make()
    with first.in_flight(ENGINE, slot_at(ENGINE)):
        first.add_chunk(EVENT)
        with second.in_flight(ENGINE, slot_at(ENGINE)):
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
    load = EngineLoad(pod=POD, kv_capacity_tokens=1 << 40, kind=EngineKind(model_of(1000.0)))
    waiting = Waiting("0", clock(), clock() + 1.0, 300.0, 556.0, RequestAttributes(None, None))
    freed, tokens = [], []
    reservation = Reservation(
        Endpoint(POD, "10.0.0.1:8000", "r1"),
        Placement(load, waiting, 300.0, clock()),
        Engines(),
        clock,
        lambda: freed.append(1),
        tokens.append,
    )
    yield load, reservation, freed
    assert len(tokens) == 1


async def test_first_token_frees_the_prefill_work_and_updates_the_throughput(slot, clock, make):
    load, reservation, freed = slot
    before, record = load.kind.model, make()
    with record.in_flight(ENGINE, reservation):
        assert (load.prefill_tokens, freed) == (300.0, [])
        clock.now_s += 0.5
        record.start_response(is_stream=True)
        record.add_chunk(EVENT)
        assert (load.prefill_tokens, load.kv_tokens, freed) == (0.0, 556.0, [1])
        took_s = 0.5 / load.speed.factor
        assert load.kind.model == before.after_first_token(PromptWork(300.0, 0, 0.0), took_s)
        record.add_chunk(EVENT)
        assert freed == [1]
    assert (load.kv_tokens, freed) == (0.0, [1, 1])


async def test_error_event_does_not_update_the_throughput(slot, clock, make):
    load, reservation, freed = slot
    before, record = load.kind.model, make()
    with record.in_flight(ENGINE, reservation):
        clock.now_s += 0.5
        record.start_response(is_stream=True)
        record.add_chunk(b'data: {"error": {"code": 400}}\n\n')
        assert (load.kind.model, load.prefill_tokens, freed) == (before, 300.0, [])
    assert (load.kind.model, load.prefill_tokens, freed) == (before, 0.0, [1])


async def test_prefill_work_of_a_complete_response_is_freed_after_its_predicted_time(
    slot, until, make
):
    load, reservation, freed = slot
    before, record = load.kind.model, make(stream=False)
    with record.in_flight(ENGINE, reservation):
        assert load.prefill_tokens == 300.0
        await until(lambda: freed)
        assert (load.prefill_tokens, load.kv_tokens) == (0.0, 556.0)
        record.start_response(is_stream=False)
        record.add_chunk(USAGE % 3)
        assert freed == [1]
    assert (load.kind.model, load.kv_tokens, freed) == (before, 0.0, [1, 1])


async def test_release_cancels_the_prefill_timer(slot, make):
    load, reservation, freed = slot
    with make(stream=False).in_flight(ENGINE, reservation):
        timer = reservation._timer
        assert timer is not None
    assert timer.cancelled()
    assert (load.prefill_tokens, freed) == (0.0, [1])


async def test_prefill_work_is_freed_at_once_at_unknown_throughput(slot, make):
    load, reservation, freed = slot
    load.kind.model = FirstTokenModel()
    reservation._placement.expected_s = load.ttft_s(300.0, 0.0)
    with make(stream=False).in_flight(ENGINE, reservation):
        assert (load.prefill_tokens, reservation._timer, freed) == (0.0, None, [1])
