"""Admission among tenants and classes: order, shares, refusals, and a state machine over random moves."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.admission.test_admission import ATTRIBUTES, SPEC, engine, holders, order, place

from penstock.core.admission.admission import Admission
from penstock.core.admission.batch_window import MAX_BATCH_SEQUENCES
from penstock.core.admission.decision import Reject, Wait
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.requester import Requester
from penstock.core.tenants.tenant import BATCH_PRIORITY

WIDE = replace(SPEC, max_queued=100_000)
BATCH = Requester("b", BATCH_PRIORITY)


def request(name, requester, tokens=100.0, arrival_s=0.0, adapter=""):
    deadline_s = arrival_s + SPEC.ttft_s
    return Waiting(name, arrival_s, deadline_s, tokens, tokens, ATTRIBUTES, adapter, requester)


def queue(*requests, spec=SPEC):
    admission = Admission(spec)
    for each in requests:
        assert admission.add(each, 0.0) == Wait()
    return admission


def names(admission, *engines):
    return [name for name, _ in order(admission, 0.0, *engines)]


def test_one_that_may_not_wait_displaces_nobody():
    spec = replace(SPEC, max_queued=1)
    admission = queue(request("low", Requester("low")), spec=spec)
    refused = admission.add(request("1", Requester("high", priority=5, max_queued=0)), 0.0)
    assert isinstance(refused, Reject)
    assert refused.reason == "tenant_queue_full"
    assert names(admission, engine()) == ["low"]


def test_a_higher_class_is_first_though_its_requests_are_late():
    low, high = Requester("low"), Requester("high", priority=5)
    admission = queue(request("1", low), request("2", high, arrival_s=-9.0))
    assert names(admission, engine()) == ["2", "1"]


def test_a_lower_class_leaves_half_of_the_objective_to_an_active_higher_one():
    low, high = Requester("low"), Requester("high", priority=5)
    requests = [request(str(n), low, 200) for n in range(5)]
    assert names(queue(*requests), engine()) == ["0", "1", "2", "3"]
    admission = queue(*requests, request("high", high))
    busy = engine()
    assert names(admission, busy) == ["high", "0", "1"]
    assert admission.add(request("again", high), 0.0) == Wait()
    assert names(admission, busy) == ["again"]


def test_a_blocked_request_of_a_higher_class_keeps_its_engines_only():
    low, high = Requester("low"), Requester("high", priority=5)
    admission = queue(request("low", low), request("high", high, adapter="sql"))
    busy, free = engine("a", prefill_tokens=2000), engine("b")
    assert order(admission, 0.0, busy, free, holders=holders(sql=["a"])) == [("low", ["b"])]
    assert names(queue(request("low", low), request("high", high)), busy) == []


def test_tenants_of_a_class_take_turns_by_tokens_for_their_weight():
    """The flood of one tenant was there first. The other gets two tokens for each of it."""
    flood = [request(f"f{n}", Requester("f"), 10, -0.1) for n in range(8)]
    other = [request(f"o{n}", Requester("o", weight=2), 10) for n in range(5)]
    assert names(queue(*flood, *other, spec=WIDE), engine())[:9] == [
        "f0", "o0", "o1", "f1", "o2", "o3", "f2", "o4", "f3",
    ]  # fmt: skip


def test_a_tenant_that_was_idle_has_no_credit():
    admission = queue(*(request(f"f{n}", Requester("f"), 10) for n in range(20)), spec=WIDE)
    for n in range(19):
        assert admission.next([engine()], 0.0).waiting.request_id == f"f{n}"
    for n in range(3):
        assert admission.add(request(f"o{n}", Requester("o"), 10), 0.0) == Wait()
    assert names(admission, engine()) == ["o0", "f19", "o1", "o2"]


def test_an_ended_request_is_charged_by_its_actual_tokens():
    admission = queue(*(request(f"{t}{n}", Requester(t), 10) for n in range(4) for t in "ab"))
    first = admission.next([engine()], 0.0).waiting
    assert first.request_id == "a0"
    admission.correct(first.requester, 20.0)
    assert names(admission, engine()) == ["b0", "a1", "b1", "b2", "b3", "a2", "a3"]


def test_a_tenant_beyond_its_share_leaves_room_for_others():
    """Half of an engine is each one's: 450 of 900 tokens. Beyond it the flood gets what is below 500."""
    flood = [request(f"f{n}", Requester("f"), 100) for n in range(12)]
    admission = queue(*flood, request("o0", Requester("o"), 100), spec=WIDE)
    busy = engine()
    assert names(admission, busy) == ["f0", "o0", "f1", "f2", "f3"]
    assert admission.add(request("o1", Requester("o"), 300), 0.0) == Wait()
    assert names(admission, busy) == ["o1"]


def test_batches_use_a_quarter_of_what_is_idle():
    admission = queue(*(request(str(n), BATCH, 100) for n in range(4)))
    assert names(admission, engine()) == ["0", "1"]
    admission = queue(request("b", BATCH), request("sql", Requester("a"), adapter="sql"))
    assert names(admission, engine()) == []
    assert names(queue(request("b", BATCH)), engine(kv_tokens=4_950)) == []
    assert names(queue(request("b", BATCH)), engine(kv_tokens=4_900)) == ["b"]


def test_batches_have_few_sequences_at_an_engine():
    at, waiting = engine(), request("b", BATCH, 1)
    placements = [place(at, waiting, 0.0) for _ in range(MAX_BATCH_SEQUENCES)]
    at.prefill_tokens = 0.0
    at.refresh()
    assert names(queue(waiting), at) == []
    placements[0].release(0.0)
    assert names(queue(waiting), at) == ["b"]


def test_slow_answers_leave_less_for_batches():
    at, waiting = engine(), request("b", BATCH, 1)
    first, *_ = (place(at, waiting, 0.0) for _ in range(MAX_BATCH_SEQUENCES // 2))
    at.prefill_tokens = 0.0
    at.refresh()
    assert names(queue(waiting), at) == ["b"]
    first.answered(0.6)
    assert names(queue(waiting), at) == []


A, B, HIGH = Requester("a"), Requester("b", weight=2), Requester("h", priority=1)


@pytest.mark.parametrize(
    ("waiting", "newcomer", "given_up"),
    [
        # The lowest class, whichever tenant has most of it.
        ([request("h", HIGH, 9), request("a", A, 1)], request("n", HIGH), "a"),
        ([request("h1", HIGH, 9), request("h2", HIGH, 9)], request("n", A), "n"),
        # The tenant with the most tokens for its weight, and its latest deadline.
        ([request("a", A, 60), request("b", B, 100)], request("n", B, 10), "a"),
        ([request("a", A, 40), request("b", B, 100)], request("n", B, 10, 1.0), "n"),
        ([request("a", A, 40), request("b", B, 100, 2.0)], request("n", B, 10, 1.0), "b"),
        # Of one tenant alone the newcomer, as its deadline is the latest.
        ([request("1", A), request("2", A, arrival_s=0.1)], request("n", A, arrival_s=0.1), "n"),
    ],
)
def test_a_full_queue_gives_up_the_request_that_is_last_in_turn(waiting, newcomer, given_up):
    admission = queue(*waiting, spec=replace(SPEC, max_queued=2))
    decision = admission.add(newcomer, 0.0)
    admission.check()
    if given_up == "n":
        assert (decision.reason, decision.waiting) == ("queue_full", newcomer)
    else:
        assert decision.displaced.reason == "displaced"
        assert decision.displaced.waiting.request_id == given_up
        assert newcomer in list(admission)


def test_a_tenant_has_a_bound_of_its_own_in_each_class():
    one = Requester("a", max_queued=1)
    admission = queue(request("1", one), request("2", replace(one, priority=BATCH_PRIORITY)))
    assert admission.add(request("3", one), 0.0).reason == "tenant_queue_full"
    assert admission.add(request("4", Requester("b")), 0.0) == Wait()


@pytest.mark.parametrize(
    ("requester", "backlog", "is_refused"),
    [
        (Requester("a", max_wait_s=4.0), 3_400, False),
        (Requester("a", max_wait_s=4.0), 3_550, True),
        # The own class has 1,000 tokens of another tenant, of which as many go first as of the own.
        (Requester("new", max_wait_s=4.0), 3_700, False),
        (Requester("new", max_wait_s=4.0), 3_950, True),
        # All of a higher class goes first.
        (Requester("low", priority=BATCH_PRIORITY, max_wait_s=4.0), 3_550, True),
        (Requester("high", priority=9, max_wait_s=4.0), 3_890, False),
    ],
)
def test_a_request_that_cannot_go_in_its_time_is_refused_at_once(requester, backlog, is_refused):
    admission = queue(*(request(str(n), Requester("a"), 125) for n in range(4)))
    decision = admission.add(request("n", requester), 0.0, [engine(prefill_tokens=backlog)])
    assert isinstance(decision, Reject) is is_refused
    if is_refused:
        assert decision.reason == "overloaded"
        assert 3.0 < decision.retry_after_s < 6.0


def test_an_idle_engine_refuses_no_prompt_for_its_length():
    decision = Admission(SPEC).add(request("n", Requester(), 900_000.0), 0.0, [engine()])
    assert decision == Wait()


def test_a_request_that_can_be_in_time_is_never_predicted_to_be_late():
    admission = queue(*(request(str(n), Requester("a"), 9_000, -9.0) for n in range(7)))
    decision = admission.add(request("n", Requester("a", max_wait_s=1.0)), 0.0, [engine()])
    assert decision == Wait()


@given(
    weights=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    lengths=st.lists(st.integers(1, 300), min_size=400, max_size=400),
)
@settings(max_examples=50, deadline=None)
def test_backlogged_tenants_get_tokens_by_weight(weights, lengths):
    """At every moment the tokens for the weight differ by at most one request of either."""
    first, second = (
        Requester(name, weight=weight) for name, weight in zip("ab", weights, strict=True)
    )
    admission = queue(
        *(
            request(str(n), second if n % 2 else first, float(tokens))
            for n, tokens in enumerate(lengths)
        ),
        spec=WIDE,
    )
    sent = {"a": 0.0, "b": 0.0}
    longest = max(lengths)
    while True:
        waiting = {each.requester.tenant for each in admission}
        if waiting != {"a", "b"}:
            return
        admitted = admission.next([engine()], 0.0)
        sent[admitted.waiting.requester.tenant] += admitted.waiting.kv_tokens
        by_weight = sent["a"] / weights[0] - sent["b"] / weights[1]
        assert abs(by_weight) <= longest / weights[0] + longest / weights[1]


REQUESTERS = [
    Requester(tenant, priority, weight, max_queued)
    for tenant, priority, weight, max_queued in [
        ("", 0, 1, None), ("a", 0, 1, None), ("b", 0, 3, 2), ("b", 0, 2, 2), ("c", 7, 1, None),
        ("a", BATCH_PRIORITY, 1, None),
    ]
]  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Requests of tenants and classes, engines and time, in any order. Nobody is lost."""

    def __init__(self):
        super().__init__()
        self.admission = Admission(SPEC)
        self.engines: dict[str, EngineLoad] = {}
        self.now = 0.0
        self.waiting, self.sent, self.num_arrived = {}, {}, 0
        self.copies = {"": set(), "sql": set()}

    @rule(
        tokens=st.integers(1, 3000),
        requester=st.sampled_from(REQUESTERS),
        adapter=st.sampled_from(["", "sql"]),
    )
    def arrive(self, tokens, requester, adapter):
        waiting = request(str(self.num_arrived), requester, float(tokens), self.now, adapter)
        self.num_arrived += 1
        has_room = len(self.waiting) < SPEC.max_queued
        loads = list(self.engines.values())
        decision = self.admission.add(waiting, self.now, loads, self.copies.__getitem__)
        if isinstance(decision, Reject):
            assert decision.waiting == waiting
            assert 1.0 <= decision.retry_after_s <= 60.0
            return
        self.waiting[waiting.request_id] = waiting
        if decision.displaced is not None:
            last = self.waiting.pop(decision.displaced.waiting.request_id)
            assert last.requester.priority <= requester.priority
            assert not has_room or adapter == last.adapter == "sql"

    @rule(number=st.integers(0, 2))
    def copy_comes_or_goes(self, number):
        self.copies["sql"] ^= {f"p{number}"}
        self.admission.requeue_late()

    @rule(number=st.integers(0, 2))
    def engine_comes_or_goes(self, number):
        pod = f"p{number}"
        if self.engines.pop(pod, None) is None:
            self.engines[pod] = engine(pod)
            self.admission.requeue_late()

    @rule(seconds=st.floats(0.01, 40))
    def time_passes(self, seconds):
        self.now += seconds
        for waiting in self.admission.expired(self.now):
            del self.waiting[waiting.request_id]

    @rule(draw=st.randoms(use_true_random=False))
    def client_leaves(self, draw):
        if self.waiting:
            name = draw.choice(sorted(self.waiting))
            self.admission.remove(name)
            del self.waiting[name]

    @precondition(lambda self: self.engines)
    @rule(draw=st.randoms(use_true_random=False))
    def send(self, draw):
        loads = list(self.engines.values())
        admitted = self.admission.next(loads, self.now, self.copies.__getitem__)
        if admitted is None:
            idle = {e.pod for e in loads if not e.prefill_tokens and not e.kv_tokens}
            highest = max((w.requester.priority for w in self.waiting.values()), default=0)
            for each in self.waiting.values():
                usable = idle & self.copies["sql"] if each.adapter else idle
                assert not usable or (each.is_batch and highest > BATCH_PRIORITY)
            return
        waiting = self.waiting.pop(admitted.waiting.request_id)
        for other in self.waiting.values():
            if other.requester.priority > waiting.requester.priority:
                assert other.adapter != waiting.adapter
        self.sent[waiting.request_id] = place(draw.choice(admitted.engines), waiting, self.now)

    @precondition(lambda self: self.sent)
    @rule(draw=st.randoms(use_true_random=False), ends=st.booleans())
    def answer(self, draw, ends):
        name = draw.choice(sorted(self.sent))
        if not ends:
            self.sent[name].computed(self.now)
            return
        self.sent[name].release(self.now)
        self.admission.correct(REQUESTERS[1], draw.uniform(-500, 500))
        del self.sent[name]

    @invariant()
    def everybody_is_somewhere(self):
        self.admission.check()
        assert {waiting.request_id for waiting in self.admission} == self.waiting.keys()
        assert not self.waiting.keys() & self.sent.keys()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
