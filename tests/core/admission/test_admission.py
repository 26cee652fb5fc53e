"""Admission: tables of the policies, and a state machine over random moves."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.admission.deadline_order import DeadlineOrder
from tests.support.engine_models import model_of

from penstock.core.admission.admission import Admission
from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.decision import Reject, Wait
from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import KV_LIMIT, EngineLoad, Waiting
from penstock.core.admission.placement import Placement
from penstock.core.routing.request_attributes import RequestAttributes

# 1,000 prompt tokens a second.
MODEL = model_of(1000.0)
ATTRIBUTES = RequestAttributes(user_key=None, conversation_key=None)
SPEC = AdmissionSpec(ttft_s=1.0, max_queued=8, max_wait_s=60.0)


def engine(pod="p", prefill_tokens=0.0, kv_tokens=0.0):
    return EngineLoad(
        pod=pod,
        kv_capacity_tokens=10_000,
        kind=EngineKind(MODEL),
        prefill_tokens=prefill_tokens,
        kv_tokens=kv_tokens,
    )


def request(name, arrival_s=0.0, tokens=100.0, ttft_s=1.0, adapter=""):
    return Waiting(name, arrival_s, arrival_s + ttft_s, tokens, tokens, ATTRIBUTES, adapter)


def place(load, waiting, now):
    return Placement(load, waiting, waiting.uncached_tokens(load.pod), now)


def line(*requests, policy="deadline"):
    admission = Admission(replace(SPEC, policy=policy))
    for each in requests:
        assert admission.add(each, 0.0) == Wait()
    return admission


def order(admission, now, *engines, holders=lambda adapter: ()):
    """All that go now, with the engines that may take them; each adds to the first."""
    went = []
    while (found := admission.next(engines, now, holders)) is not None:
        waiting, fitting = found.waiting, found.engines
        went.append((waiting.request_id, [load.pod for load in fitting]))
        place(fitting[0], waiting, now)
        admission.check()
    return went


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # 300 tokens each: three are in time at once, with a tenth of the second to spare.
        ("deadline", ["b", "a", "c"]),
        ("fcfs", ["b", "a", "c"]),
        ("none", ["b", "a", "c", "d"]),
    ],
)
def test_as_many_go_as_an_engine_gives_their_first_tokens_in_time(policy, expected):
    requests = [
        request("a", 0.0, 300), request("b", -0.01, 300), request("c", 0.0, 300),
        request("d", 0.0, 300),
    ]  # fmt: skip
    assert [name for name, _ in order(line(*requests, policy=policy), 0.0, engine())] == expected


@pytest.mark.parametrize("now", [0.0, 1e6])
def test_requests_that_are_late_go_behind_those_in_time(now):
    """The order depends on deadlines relative to now, not on the clock's value."""
    late, in_time = request("late", now - 2.0, 100), request("new", now, 100)
    assert [n for n, _ in order(line(late, in_time), now, engine())] == ["new", "late"]


@pytest.mark.parametrize("policy", ["deadline", "fcfs"])
@pytest.mark.parametrize("now", [0.0, 1e6])
@pytest.mark.parametrize(("tokens", "goes"), [(899, True), (901, False)])
def test_a_tenth_of_the_objective_is_left(tokens, goes, now, policy):
    """A request is admitted if its first token is predicted within 90 % of its objective of 1 s, at 1,000
    prompt tokens/s. The tiny prefill backlog makes the engine busy; an idle one takes any request."""
    admission = line(request("a", now, tokens), policy=policy)
    assert bool(order(admission, now, engine(prefill_tokens=1e-9))) is goes


def test_late_ones_leave_half_of_the_objective_to_those_that_come_in_time():
    late = [request(str(n), -2.0, 200) for n in range(5)]
    assert len(order(line(*late), 0.0, engine())) == 2
    assert len(order(line(*late), 0.0, engine(prefill_tokens=450))) == 0


def test_an_engine_without_prompts_takes_one_that_is_too_long_anyway():
    assert order(line(request("a", 0.0, 5000)), 0.0, engine()) == [("a", ["p"])]
    assert order(line(request("a", 0.0, 5000)), 0.0, engine(prefill_tokens=1)) == []


def test_engines_without_room_are_not_asked():
    full = engine("full", kv_tokens=9_000)
    assert order(line(request("a")), 0.0, full, engine("free")) == [("a", ["free"])]
    assert order(line(request("a")), 0.0, full) == []


def test_without_engines_everybody_waits():
    admission = line(request("a"))
    assert order(admission, 0.0) == []
    assert len(admission) == 1


def test_a_new_engine_lets_late_ones_be_in_time_again():
    """Behind 2,000 tokens both are late, and who came first goes first; a new engine makes the one
    with the earlier deadline first again."""
    slow = engine("busy", prefill_tokens=2000)
    admission = line(request("first", 0.0, 700), request("second", -0.05, 700))
    assert order(admission, 0.0, slow) == []
    admission.requeue_late()
    assert [name for name, _ in order(admission, 0.0, slow, engine("new"))] == ["second"]


def test_too_many_and_too_long():
    admission = line(*(request(str(n), float(n)) for n in range(8)))
    refused = admission.add(request("one too many", 9.0), 9.0)
    assert isinstance(refused, Reject)
    assert refused.reason == "queue_full"
    assert [w.request_id for w in admission.expired(61.5)] == ["0", "1"]
    assert len(admission) == 6
    admission.check()


@pytest.mark.parametrize(
    ("waiting", "loads", "expected_s"),
    [
        ([], [engine()], 1.0),
        ([request("a", tokens=3000.0)], [engine(prefill_tokens=3000)], 6.0),
        ([request("a", tokens=3000.0)], [engine(), engine()], 1.5),
        ([request("a", tokens=1e6)], [engine()], 60.0),
        ([request("a")], [], 60.0),
    ],
)
def test_when_to_come_again(waiting, loads, expected_s):
    assert line(*waiting).retry_after_s(loads, 0) == pytest.approx(expected_s)


def holders(**pods):
    return lambda adapter: pods.get(adapter, ())


def test_an_adapter_goes_to_the_engines_that_have_it():
    admission = line(request("base"), request("sql", 0.1, adapter="sql"))
    has_sql = holders(sql=["b"])
    assert admission.adapters == {"sql"}
    assert order(admission, 0.1, engine("a"), engine("b"), holders=has_sql) == [
        ("base", ["a", "b"]), ("sql", ["b"]),
    ]  # fmt: skip
    assert not admission.adapters


def test_a_blocked_adapter_keeps_its_engines_and_no_others():
    """Both engines with sql are busy. Requests behind it have the third engine, and not those two."""
    admission = line(
        request("sql", adapter="sql"), request("base", 0.1), request("code", 0.2, adapter="code")
    )
    busy = [engine(pod, prefill_tokens=1000) for pod in "ab"]
    has = holders(sql=["a", "b"], code=["b", "c"])
    assert order(admission, 0.0, *busy, engine("c"), holders=has) == [
        ("base", ["c"]), ("code", ["c"]),
    ]  # fmt: skip
    assert [waiting.request_id for waiting in admission] == ["sql"]


def test_a_blocked_request_for_the_base_model_keeps_all_engines():
    admission = line(request("base", tokens=5000), request("sql", 0.1, adapter="sql"))
    busy = engine("a", prefill_tokens=10)
    admission.spec = replace(SPEC, ttft_s=5.0, policy="fcfs")
    assert order(admission, 0.0, busy, holders=holders(sql=["a"])) == []


@pytest.mark.parametrize("first", ["", "sql"])
def test_late_requests_of_all_adapters_go_in_the_order_in_which_they_got_late(first):
    other = "sql" if not first else ""
    admission = line(request("1", -9.0, adapter=first), request("2", -8.0, adapter=other))
    assert [name for name, _ in order(admission, 0.0, engine("a"), holders=holders(sql=["a"]))] == [
        "1", "2",
    ]  # fmt: skip


def test_requests_for_an_adapter_that_no_engine_has_wait_and_block_nobody():
    admission = line(request("sql", -9.0, adapter="sql"), request("base", 0.0))
    assert order(admission, 0.0, engine("a")) == [("base", ["a"])]
    assert order(admission, 0.0, engine("a"), holders=holders(sql=["a"])) == [("sql", ["a"])]


def test_requests_for_one_adapter_fill_at_most_half_of_the_queue():
    admission = line(*(request(str(n), adapter="sql") for n in range(4)))
    assert isinstance(admission.add(request("more", adapter="sql"), 0.0), Reject)
    admission.remove("0")
    assert admission.add(request("again", adapter="sql"), 0.0) == Wait()
    for n in range(4):
        assert admission.add(request(f"base-{n}"), 0.0) == Wait()
    assert isinstance(admission.add(request("full"), 0.0), Reject)


class Machine(RuleBasedStateMachine):
    """Requests, engines and time, in any order. Nobody is lost, and nobody is sent twice."""

    def __init__(self):
        super().__init__()
        self.admission, self.reference = Admission(SPEC), DeadlineOrder(SPEC.ttft_s)
        self.engines = {}
        self.now = 0.0
        self.waiting, self.sent, self.came = {}, {}, 0  # waiting: adapter by request
        self.copies = {"": set(), "sql": set(), "code": set()}

    @rule(tokens=st.integers(1, 3000), adapter=st.sampled_from(["", "sql", "code"]))
    def arrive(self, tokens, adapter):
        name = str(self.came)
        self.came += 1
        newcomer = request(name, self.now, float(tokens), adapter=adapter)
        is_in = self.admission.add(newcomer, self.now) == Wait()
        num_alike = list(self.waiting.values()).count(adapter)
        has_room = not adapter or num_alike < SPEC.max_queued / 2
        assert is_in == (len(self.waiting) < SPEC.max_queued and has_room)
        if is_in:
            self.waiting[name] = adapter
            self.reference.add(newcomer)

    @rule(adapter=st.sampled_from(["sql", "code"]), number=st.integers(0, 3))
    def copy_comes_or_goes(self, adapter, number):
        self.copies[adapter] ^= {f"p{number}"}
        self.admission.requeue_late()
        self.reference.requeue_late()

    @rule(number=st.integers(0, 3))
    def engine_comes_or_goes(self, number):
        pod = f"p{number}"
        if self.engines.pop(pod, None) is None:
            self.engines[pod] = engine(pod)
            self.admission.requeue_late()
            self.reference.requeue_late()

    @rule(seconds=st.floats(0.01, 30))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def expire(self):
        for waiting in self.admission.expired(self.now):
            assert waiting.arrival_s <= self.now - SPEC.max_wait_s
            del self.waiting[waiting.request_id]
            self.reference.remove(waiting.request_id)

    @rule(draw=st.randoms(use_true_random=False))
    def client_leaves(self, draw):
        if self.waiting:
            name = draw.choice(sorted(self.waiting))
            self.admission.remove(name)
            self.reference.remove(name)
            del self.waiting[name]

    @precondition(lambda self: self.engines)
    @rule(draw=st.randoms(use_true_random=False))
    def send(self, draw):
        loads = list(self.engines.values())
        expected = self.reference.next(loads, self.now, self.copies.__getitem__)
        found = self.admission.next(loads, self.now, self.copies.__getitem__)
        assert (found and (found.waiting, found.engines)) == expected
        if found is None:
            idle = {e.pod for e in loads if not e.prefill_tokens and not e.kv_tokens}
            usable = [
                idle & self.copies[adapter] if adapter else idle
                for adapter in self.waiting.values()
            ]
            assert not any(usable), "an engine that does nothing takes whatever waits"
            return
        waiting, fitting = found.waiting, found.engines
        assert self.waiting.pop(waiting.request_id) == waiting.adapter
        for load in fitting:
            assert not waiting.adapter or load.pod in self.copies[waiting.adapter]
            assert not load.kv_tokens or load.kv_tokens + waiting.kv_tokens <= KV_LIMIT * 10_000
        self.sent[waiting.request_id] = place(draw.choice(fitting), waiting, self.now)

    @precondition(lambda self: self.sent)
    @rule(draw=st.randoms(use_true_random=False), ends=st.booleans())
    def answer(self, draw, ends):
        name = draw.choice(sorted(self.sent))
        if ends:
            self.sent.pop(name).release(self.now)
        else:
            self.sent[name].computed(self.now)

    @invariant()
    def everybody_is_somewhere(self):
        self.admission.check()
        assert {waiting.request_id for waiting in self.admission} == self.waiting.keys()
        assert not self.waiting.keys() & self.sent.keys()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
