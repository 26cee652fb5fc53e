"""Statistics that one request adds to its service, with a manual clock."""

import math

import pytest

from penstock.core.canary.evidence import tpot_bin, ttft_bin
from penstock.core.canary.moments import Moments
from penstock.core.routing.engine_load import EngineLoad, Place, Waiting
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.prefill_throughput import Pace
from penstock.core.routing.token_estimate import TokenEstimate
from penstock.core.spec.objectives import Objectives
from penstock.gateway.account import Account
from penstock.gateway.seat import Seat
from penstock.gateway.ticket import Ticket

POD = "default/engine"
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = (
    b'{"usage":{"prompt_tokens":300,"completion_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":256}}}'
)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def account():
    return Account()


@pytest.fixture
def make(account, clock):
    def make(*, stream=True, chat=False, **more):
        return Ticket(account, clock, clock.now_s, 1200, is_stream=stream, is_chat=chat, **more)

    return make


def stream(ticket, clock, *, queued_s=1.0, first_s=0.5, gaps_s=(1.0, 1.0), seat=None):
    """A streamed answer, of a token more than there are gaps."""
    clock.now_s += queued_s
    with ticket.sent(POD, seat):
        clock.now_s += first_s
        ticket.begins(is_stream=True)
        ticket.answered(EVENT)
        for gap_s in gaps_s:
            clock.now_s += gap_s
            ticket.answered(EVENT)
        ticket.answered(b"data: " + USAGE % (len(gaps_s) + 1) + b"\n\ndata: [DONE]\n\n")


def whole(ticket, clock, body, *, took_s=1.5):
    with ticket.sent(POD, None):
        clock.now_s += took_s
        ticket.begins(is_stream=False)
        ticket.answered(body)


def log(seconds):
    return Moments.of([math.log(seconds)])


def test_a_stream(account, clock, make):
    ticket = make()
    stream(ticket, clock)
    ticket.close(200)
    seen = account.reading(0.0, clock())
    assert (seen.arrivals, seen.prompt_tokens) == (1, 300)
    assert (seen.ended, seen.late, seen.shed, seen.failed) == (1, 0, 0, 0)
    assert (seen.output_tokens, seen.attended_tokens) == (3, 300 + 301 + 302)
    assert (seen.ttft_s.count, seen.ttft_s.total) == (1, 1.5)
    assert (seen.tpot_s.count, seen.tpot_s.total) == (1, 1.0)
    arm = account.arms()[POD]
    assert (arm.requests, arm.errors, arm.violations, arm.empty_outputs) == (1, 0, 0, 0)
    assert (arm.prompt_tokens, arm.cached_tokens) == (300, 256)
    assert (arm.overall, arm.output) == (log(1.5), log(3))
    assert arm.ttft[ttft_bin(300, 0)] == log(0.5)  # since the engine got it
    assert arm.tpot[tpot_bin(300, 0)] == log(1.0)
    assert arm.tenants == {}


def test_an_engine_that_tells_no_usage(account, clock, make):
    """Its tokens are events, of a chat without the one that opens it, and its prompt is estimated."""
    for chat, tokens in ((False, 3), (True, 2)):
        before = account.output_tokens
        ticket = make(chat=chat)
        with ticket.sent(POD, None):
            for chunk in (EVENT, EVENT, EVENT, b"data: [DONE]\n\n"):
                ticket.answered(chunk)
        ticket.close(200)
        assert account.output_tokens - before == tokens
    assert account.attended_tokens == 300 + 301 + 302 + 300 + 301
    assert account.token_estimate == TokenEstimate()
    arm = account.arms()[POD]
    assert (arm.requests, arm.prompt_tokens, arm.cached_tokens) == (2, 0, 0)
    assert arm.ttft[ttft_bin(300, 0)].n == 2


def test_the_tokens_that_an_engine_tells_correct_the_estimate(account, clock, make):
    ticket = make()
    with ticket.sent(POD, None):
        ticket.answered(b'data: {"usage":{"prompt_tokens":600,"completion_tokens":1}}\n\n')
    ticket.close(200)
    assert account.token_estimate == TokenEstimate().observe(1200, 600)
    assert account.attended_tokens == 600


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "late", "violations"),
    [(1.5, 1.0, 0, 0), (1.49, 1.0, 1, 1), (1.5, 0.99, 0, 1), (1.49, 0.99, 1, 1)],
)
def test_the_objectives_of_a_stream(account, clock, make, ttft_s, tpot_s, late, violations):
    account.objectives = Objectives(ttft_s, tpot_s)
    ticket = make()
    stream(ticket, clock)
    ticket.close(200)
    assert (account.late, account.arms()[POD].violations) == (late, violations)


@pytest.mark.parametrize(
    ("tokens", "ttft_s", "tpot_s", "late"),
    [(11, 0.5, 0.1, 0), (11, 0.5, 0.09, 1), (11, 0.49, 0.1, 1), (0, 1.5, 1.0, 0), (1, 1.4, 9.0, 1)],
)
def test_the_objectives_of_a_whole_answer(account, clock, make, tokens, ttft_s, tpot_s, late):
    """A complete answer may take TTFT and TPOT together, as its first byte is its last."""
    account.objectives = Objectives(ttft_s, tpot_s)
    ticket = make(stream=False)
    whole(ticket, clock, USAGE % tokens)
    ticket.close(200)
    seen, arm = account.reading(0.0, clock()), account.arms()[POD]
    assert (seen.ended, seen.late, arm.violations) == (1, late, late)
    assert (seen.ttft_s.count, seen.tpot_s.count, arm.overall.n) == (0, 0, 0)
    assert (arm.requests, arm.prompt_tokens, arm.cached_tokens) == (1, 300, 256)


def test_an_engine_answers_for_its_own_time_alone(account, clock, make):
    account.objectives = Objectives(1.0, 1.0)
    ticket = make()
    clock.now_s += 5.0
    with ticket.sent("default/other", None):
        clock.now_s += 5.0
    stream(ticket, clock, queued_s=0.25, first_s=0.5)
    ticket.close(200)
    assert account.late == 1  # for its client
    arm = account.arms()[POD]
    assert (arm.violations, arm.overall) == (0, log(0.75))


@pytest.mark.parametrize(
    ("blocked_s", "is_timed"),
    [((), True), ((0.05,) * 9, True), ((0.1, 0.1), True), ((0.1, 0.11), False), ((2.0,), False)],
)
def test_a_client_that_is_waited_for_hides_the_pace(account, clock, make, blocked_s, is_timed):
    """Up to a tenth of the stream's 2 s may be spent waiting for the client."""
    account.objectives = Objectives(9.0, 0.5)
    ticket = make()
    stream(ticket, clock)
    for seconds in blocked_s:
        ticket.blocked(seconds)
    ticket.close(200)
    arm = account.arms()[POD]
    assert account.reading(0.0, clock()).tpot_s.count == is_timed
    assert arm.tpot[tpot_bin(300, 0)].n == is_timed
    assert (arm.requests, arm.violations) == (1, is_timed)


def test_one_token_misses_no_pace(account, clock, make):
    account.objectives = Objectives(9.0, 0.5)
    ticket = make()
    stream(ticket, clock, gaps_s=())
    ticket.close(200)
    assert (account.late, account.arms()[POD].violations) == (0, 0)


def test_a_whole_answer_in_parts_has_no_pace(account, clock, make):
    account.objectives = Objectives(1.0, 0.1)
    ticket = make(stream=False)
    with ticket.sent(POD, None):
        clock.now_s += 0.5
        ticket.begins(is_stream=False)
        ticket.answered(b"{")
        clock.now_s += 5.0
        ticket.answered(USAGE[1:] % 3)
    ticket.close(200)
    assert (account.late, account.arms()[POD].violations) == (0, 0)
    assert account.reading(0.0, clock()).tpot_s.count == 0


@pytest.mark.parametrize(("gaps_s", "timed"), [((), 0), ((1.0,), 1)])
def test_one_token_has_no_pace(account, clock, make, gaps_s, timed):
    ticket = make()
    stream(ticket, clock, gaps_s=gaps_s)
    ticket.close(200)
    seen = account.reading(0.0, clock())
    assert (seen.ttft_s.count, seen.tpot_s.count) == (1, timed)


@pytest.mark.parametrize(
    ("status", "ended", "failed"),
    [(200, 1, 0), (399, 1, 0), (400, 0, 0), (499, 0, 0), (500, 0, 1), (503, 0, 1)],
)
def test_how_it_ended(account, clock, make, status, ended, failed):
    ticket = make()
    stream(ticket, clock)
    ticket.close(status)
    assert (account.ended, account.failed, account.shed) == (ended, failed, 0)
    assert account.arm(POD).snapshot().errors == failed


@pytest.mark.parametrize(("status", "shed"), [(200, 0), (404, 0), (499, 0), (500, 1), (503, 1)])
def test_one_that_no_engine_got(account, make, status, shed):
    make().close(status)
    assert (account.ended, account.failed, account.shed) == (0, 0, shed)
    assert account.arms() == {}


def test_one_that_breaks_off_without_an_engine(account, make):
    ticket = make()
    ticket.lose()
    ticket.close(503)
    assert (account.failed, account.shed) == (1, 0)
    assert account.arms() == {}


@pytest.mark.parametrize("code", [499, 500])
def test_an_error_event_is_the_engines_failure_from_500_on(account, clock, make, code):
    ticket = make()
    with ticket.sent(POD, None):
        ticket.answered(EVENT)
        ticket.answered(b'data: {"error": {"code": %d}}\n\n' % code)
    ticket.close(200)
    failed = int(code == 500)
    assert (account.failed, account.ended) == (failed, 1 - failed)
    assert account.arms()[POD].errors == failed


@pytest.mark.parametrize(("is_excused", "errors"), [(False, 1), (True, 0)])
def test_one_that_breaks_off(account, clock, make, is_excused, errors):
    ticket = make(tenant="acme")
    stream(ticket, clock)
    ticket.lose()
    if is_excused:
        ticket.excuse()
    ticket.close(200)
    assert (account.failed, account.ended) == (1, 0)
    arm = account.arm(POD).snapshot()
    assert arm.errors == errors
    assert [each.errors for each in arm.tenants.values()] == [1] * errors


def test_each_engine_that_fails_it_is_charged_once(account, make):
    ticket = make(tenant="acme")
    for pod in ("default/a", "default/b", "default/a"):
        with ticket.sent(pod, None):
            pass
        ticket.attempt_failed(pod)
    ticket.close(502)
    arms = account.arms()
    assert {pod: arm.errors for pod, arm in arms.items()} == {"default/a": 1, "default/b": 1}
    assert all(arm.tenants["acme"].errors == 1 for arm in arms.values())
    assert account.failed == 1


def test_a_tenant_is_told_apart(account, clock, make):
    ticket = make(tenant="acme")
    stream(ticket, clock)
    ticket.close(200)
    (tenant,) = account.arms()[POD].tenants.values()
    assert (tenant.requests, tenant.errors) == (1, 0)
    assert (tenant.ttft, tenant.tpot) == (log(0.5), log(1.0))


def test_who_waits_and_who_is_served(account, clock, make):
    """Waiting and running requests are counted, and no longer once they end."""
    first = make()
    clock.now_s += 1.0
    second = make()
    clock.now_s += 2.0
    with first.queued(), second.queued():
        seen = account.reading(7.0, clock())
        assert (seen.at_s, seen.queued, seen.queued_prompt_tokens) == (7.0, 2, 600)
        assert seen.oldest_wait_s == 3.0
    with first.sent(POD, None), second.sent(POD, None):
        first.answered(EVENT)
        seen = account.reading(7.0, clock())
        assert (seen.in_flight, seen.in_flight_prefill_tokens) == (2, 300)
    seen = account.reading(7.0, clock())
    assert (seen.queued, seen.in_flight, seen.in_flight_prefill_tokens) == (0, 0, 0)
    assert (seen.queued_prompt_tokens, seen.oldest_wait_s) == (0, 0.0)


def test_requests_ahead_and_beside(account, make):
    """Counts requests that are at the engine now, without failed attempts and ended ones."""
    for _ in range(2):
        with make().sent(POD, None):
            pass
    first, second = make(), make()
    with first.sent(POD, None):
        first.answered(EVENT)
        with second.sent(POD, None):
            assert account.given(POD) == (1, 2)
            account.answered(POD)
            assert account.left(POD) == 2
            assert account.given("default/other") == (0, 0)
        assert account.given(POD) == (0, 1)
        account.answered(POD)
        assert account.left(POD) == 1
    assert account.given(POD) == (0, 0)


@pytest.fixture
async def place(clock):
    """An engine that computes 1,000 tokens a second, a request's place at it, and what is freed."""
    load = EngineLoad(pod=POD, kv_capacity_tokens=1 << 40, pace=Pace(1000.0, 1.0))
    waiting = Waiting("0", clock(), clock() + 1.0, 300.0, 556.0)
    freed = []
    seat = Seat(
        Endpoint(POD, "10.0.0.1:8000", "r1"), Place(load, waiting, clock()), lambda: freed.append(1)
    )
    return load, seat, freed


async def test_a_stream_frees_its_prompt_with_its_first_token_and_shows_the_pace(
    place, clock, make
):
    load, seat, freed = place
    before, ticket = load.pace, make()
    with ticket.sent(POD, seat):
        assert (load.prefill_tokens, freed) == (300.0, [])
        clock.now_s += 0.5
        ticket.begins(is_stream=True)
        ticket.answered(EVENT)
        assert (load.prefill_tokens, load.kv_tokens, freed) == (0.0, 556.0, [1])
        assert load.pace == before.after_first_token(300.0, 0.5)
        ticket.answered(EVENT)
        assert freed == [1]
    assert (load.kv_tokens, freed) == (0.0, [1, 1])


async def test_an_error_shows_no_pace(place, clock, make):
    load, seat, freed = place
    before, ticket = load.pace, make()
    with ticket.sent(POD, seat):
        clock.now_s += 0.5
        ticket.begins(is_stream=True)
        ticket.answered(b'data: {"error": {"code": 400}}\n\n')
        assert (load.pace, load.prefill_tokens, freed) == (before, 300.0, [])
    assert (load.pace, load.prefill_tokens, freed) == (before, 0.0, [1])


async def test_a_whole_answer_is_presumed_to_begin_when_expected(place, until, make):
    load, seat, freed = place
    before, ticket = load.pace, make(stream=False)
    with ticket.sent(POD, seat):
        assert load.prefill_tokens == 300.0
        await until(lambda: freed)
        assert (load.prefill_tokens, load.kv_tokens) == (0.0, 556.0)
        ticket.begins(is_stream=False)
        ticket.answered(USAGE % 3)
        assert freed == [1]
    assert (load.pace, load.kv_tokens, freed) == (before, 0.0, [1, 1])


async def test_whoever_leaves_before_is_presumed_no_more(place, make):
    load, seat, freed = place
    with make(stream=False).sent(POD, seat):
        timer = seat._timer
        assert timer is not None
    assert timer.cancelled()
    assert (load.prefill_tokens, freed) == (0.0, [1])


async def test_an_engine_of_unknown_pace_is_presumed_to_be_done_at_once(place, make):
    load, seat, freed = place
    load.pace = Pace()
    with make(stream=False).sent(POD, seat):
        assert (load.prefill_tokens, seat._timer, freed) == (0.0, None, [1])
