"""A user's own metrics: when they are asked, what answers do, and what a verdict makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.metric_gate import (
    NOT_MEASURED,
    MetricGateState,
    QueryFailure,
    advance,
    record_answer,
)
from penstock.core.canary.metric_verdict import apply_metric_gates
from penstock.core.canary.verdict import Abort, Accept, Continue, Extend
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.metric_gate import MetricGate

GATE = MetricGate(name="m", server="http://p", query="up", minimum=0.5, maximum=2.0)


def run_gate(gate, answers, each_s=10.0):
    """Run a gate: an answer for each query, and the state after each tick."""
    state, looks, left = NOT_MEASURED, [], list(answers)
    while left:
        state, is_due = advance(gate, state, each_s)
        if is_due:
            state = record_answer(gate, state, left.pop(0))
        looks.append(state)
    return looks


def gate_with(**fields):
    return MetricGate(**{name: getattr(GATE, name) for name in GATE.__slots__} | fields)


@pytest.mark.parametrize(
    ("answers", "fields", "state"),
    [
        ([1.0], {}, "Passing"),
        ([0.5], {}, "Passing"),
        ([2.0], {}, "Passing"),
        ([2.001], {}, "Failed"),
        ([0.499], {}, "Failed"),
        ([float("inf")], {}, "Failed"),
        ([3.0], {"failure_limit": 1}, "Failing"),
        ([3.0, 1.0], {"failure_limit": 1}, "Passing"),
        ([3.0, 1.0, 3.0], {"failure_limit": 1}, "Failed"),
        ([None], {}, "NoData"),
        ([None] * 9, {}, "NoData"),
        ([None], {"no_data": "Pass"}, "Passing"),
        ([None], {"no_data": "Fail"}, "Failed"),
        ([None, 1.0], {"no_data": "Fail", "failure_limit": 1}, "Passing"),
        ([QueryFailure("down")] * 9, {"no_data": "Fail"}, "Unreadable"),
        ([QueryFailure("down"), 1.0], {}, "Passing"),
        ([1.0, None], {}, "NoData"),
    ],
)
def test_what_answers_come_to(answers, fields, state):
    assert run_gate(gate_with(**fields), answers)[-1].state == state


def test_it_is_asked_after_its_delay_and_then_at_its_interval():
    gate = gate_with(initial_delay_s=30.0, interval_s=25.0)
    looks = run_gate(gate, [1.0, 1.0, 1.0])
    assert [look.elapsed_s for a, look in zip([NOT_MEASURED, *looks], looks, strict=False)
            if look.measurements > a.measurements] == [30, 60, 90]  # fmt: skip
    assert [look.state for look in looks[:3]] == ["Waiting", "Waiting", "Passing"]


def test_failures_are_told_with_bounds_and_counts():
    said = run_gate(gate_with(failure_limit=1), [3.0, 1.0, 0.1])[-1].said
    assert said == ("0.1, below its minimum 0.5; 2 of 3 measurements failed, failureLimit is 1")


def test_only_known_names_are_put_into_a_query():
    gate = gate_with(query='rate(x{r="$revision",s=~"$stable|a$",n="$revisions"}[5m]) $namespace')
    names = {"namespace": "n", "service": "s", "revision": "b", "stable": "a"}
    assert gate.query_for(names) == 'rate(x{r="b",s=~"a|a$",n="$revisions"}[5m]) n'


SPEC = CanarySpec(max_duration_s=100.0)
STATE = JudgeState.begin(SPEC)
PASSING, WAITING = MetricGateState(state="Passing"), NOT_MEASURED
FAILED = MetricGateState(state="Failed", said="3 above 2")


@pytest.mark.parametrize(
    ("verdict", "metrics", "kind"),
    [
        (Accept("as good"), {}, Accept),
        (Accept("as good"), {"a": PASSING}, Accept),
        (Accept("as good"), {"a": PASSING, "b": WAITING}, Continue),
        (Accept("time", "Timeout"), {"b": WAITING}, Accept),
        (Extend("no requests", 0.1), {"b": FAILED}, Abort),
        (Continue("on", 0.1), {"b": FAILED}, Abort),
        (Accept("as good"), {"b": FAILED}, Abort),
        (Continue("on", 0.1), {"b": WAITING}, Continue),
        (Abort("worse"), {"a": PASSING}, Abort),
    ],
)
def test_a_verdict_beside_metrics(verdict, metrics, kind):
    after = apply_metric_gates(SPEC, STATE, verdict, metrics)
    assert isinstance(after, kind)
    if FAILED in metrics.values():
        assert (after.cause, after.reason) == ("Gate", "metric b: 3 above 2")
    if isinstance(verdict, Accept) and kind is Continue:
        assert after.weight == STATE.weight
        assert "waits for metric b" in after.reason


@pytest.mark.parametrize(("on_timeout", "kind"), [("Rollback", Abort), ("Promote", Accept)])
def test_a_metric_is_not_waited_for_for_ever(make, on_timeout, kind):
    spec = CanarySpec(max_duration_s=0.0, on_timeout=on_timeout)
    after = apply_metric_gates(spec, JudgeState.begin(spec), Accept("as good"), {"b": WAITING})
    assert (type(after), after.cause) == (kind, "Timeout")
    assert "metric b" in after.reason


@given(st.lists(st.none() | st.floats(0, 3) | st.just(QueryFailure("x")), min_size=1))
def test_counts_add_up(answers):
    gate = gate_with(failure_limit=2)
    last = NOT_MEASURED
    for state in run_gate(gate, answers, each_s=60.0):
        assert 0 <= last.failed <= state.failed <= state.measurements <= last.measurements + 1
        assert (state.failed > 2) <= (state.state in ("Failed", "Unreadable", "NoData"))
        last = state
    bad = [a for a in answers if isinstance(a, float) and not 0.5 <= a <= 2]
    assert last.failed == len(bad)
