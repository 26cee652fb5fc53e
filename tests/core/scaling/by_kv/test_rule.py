"""Decisions of the KV rule, with their reasons."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.scaling.by_kv.engine_loads import at, engine, observation

from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.delays import MAX_GAP_S, ScaleDownDelay
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import STALE_S, Missing, PodView

RULE = KvRule(kv_utilization_target=0.75, queue_length_target=4, scale_down_delay_s=60.0)
BOUNDS = Bounds(1, 10)
FRESH = ScaleDownDelay()


def decide(observation, state=FRESH, now_s=0.0, *, rule=RULE, bounds=BOUNDS):
    """The rule's decision and next state, at now_s."""
    return rule.decide(None, bounds, at(observation, now_s), state)


def desired(observation):
    return decide(observation)[0].desired


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ([engine()], 1),
        ([engine(usage=0.5)], 1),
        ([engine(usage=0.75)], 1),  # exactly the target: 1,536 of 1,536 tokens
        ([engine(usage=0.76)], 2),
        ([engine(usage=1.0)], 2),
        ([engine(usage=1.0, pending=1024)], 2),  # 3,072 = 2 x 1,536
        ([engine(usage=1.0, pending=1025)], 3),
        ([engine(usage=1.0, pending=5000)], 5),
        ([engine(usage=0.8), engine(usage=0.7)], 2),
        ([engine(usage=0.8), engine(usage=0.71)], 3),
        ([engine(usage=0.2, capacity=1000), engine(usage=1.0, capacity=3000)], 3),
    ],
)
def test_by_kv(engines, expected):
    assert desired(observation(*engines)) == expected


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        (0, 0, 1), (4, 16, 1), (5, 16, 2), (24, 16, 2), (25, 16, 3),  # each new one takes 16 + 4
        (5, 0, 2), (9, 0, 2), (10, 0, 3),
    ],
)  # fmt: skip
def test_by_queue(waiting, running, expected):
    assert desired(observation(engine(waiting=waiting, running=running))) == expected


def test_the_larger_need_decides():
    both = observation(engine(usage=1.0, waiting=100, running=4))
    decision, _ = decide(both)
    assert [(entry.step, entry.replicas) for entry in decision.trail] == [
        ("need", 2), ("queue", 13), ("up", 6), ("bounds", 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ready", "provisioned", "limit"), [(1, 1, 6), (1, 6, 6), (1, 8, 8), (3, 3, 10), (3, 6, 10)]
)
def test_up_is_bounded_by_what_is_ready(ready, provisioned, limit):
    """The number does not run away while engines start."""
    engines = [engine(usage=1.0, pending=100_000)] * ready
    assert desired(observation(*engines, provisioned=provisioned)) == limit


def test_replicas_that_start_are_not_asked_for_again():
    observed = observation(engine(usage=1.0, pending=2000), provisioned=3)
    decision, _ = decide(observed)
    assert (decision.desired, decision.code) == (3, "Steady")


@pytest.mark.parametrize(
    ("usage", "bounds", "expected", "code"),
    [
        (1.0, (1, 1), 1, "AtMaximum"),
        (0.1, (3, 5), 3, "Bounded"),
        (1.0, (3, 5), 3, "ScaleUp"),
        (0.1, (1, 9), 1, "Steady"),
    ],
)
def test_bounds(usage, bounds, expected, code):
    decision, _ = decide(observation(engine(usage=usage)), bounds=Bounds(*bounds))
    assert (decision.desired, decision.code) == (expected, code)


def test_a_lower_maximum_is_obeyed_at_once_even_without_metrics():
    narrow = Bounds(1, 2)
    assert decide(observation(*[engine(usage=0.7)] * 5), bounds=narrow)[0].desired == 2
    decision, _ = decide(observation(provisioned=5), bounds=narrow)
    assert (decision.desired, decision.code, decision.valid) == (2, "Bounded", True)


LOST = Missing("b", "ReadTimeout")


@pytest.mark.parametrize(
    ("observation", "expected", "code"),
    [
        (observation(provisioned=3), 3, "MetricsMissing"),
        (observation(LOST, provisioned=3), 3, "MetricsMissing"),
        (observation(engine(), LOST, provisioned=3), 3, "MetricsMissing"),
        (observation(engine(usage=0.9), LOST, provisioned=2), 2, "MetricsMissing"),
        (observation(engine(usage=1.0, pending=4000), LOST, provisioned=2), 4, "ScaleUp"),
    ],
)
def test_missing_metrics_hold_or_grow(observation, expected, code):
    decision, state = decide(observation, ScaleDownDelay(0.0, 999.0), 1000.0)
    assert (decision.desired, decision.code) == (expected, code)
    assert decision.valid == (code != "MetricsMissing")
    assert state.low_since_s is None


@pytest.mark.parametrize(
    ("observation", "bounds", "state", "reason"),
    [
        (
            observation(engine(usage=1.0, pending=3162)),
            Bounds(1, 3),
            FRESH,
            "KV demand of 5,210 tokens, at 75% of 2,048 per replica, needs 4; bounded by "
            "maxReplicas 3",
        ),
        (
            observation(engine(waiting=25, running=16)),
            BOUNDS,
            FRESH,
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; 25 requests wait at "
            "engines; the target allows 4 per replica, 4 now, and a further replica also runs 16: 3 needed",
        ),
        (
            observation(engine(), LOST, LOST, provisioned=3),
            BOUNDS,
            FRESH,
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; no usable metrics of b "
            "(ReadTimeout) and 1 more; 3 replicas are held",
        ),
        (observation(provisioned=2), BOUNDS, FRESH, "no engine is ready; 2 replicas are held"),
        (
            observation(engine(), engine()),
            BOUNDS,
            ScaleDownDelay(970.0, 998.0),
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; 2 are held: fewer are "
            "enough for 30 of 60 s",
        ),
        (
            observation(engine(), engine()),
            BOUNDS,
            ScaleDownDelay(940.0, 998.0),
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; fewer than 2 were enough "
            "for 60 s",
        ),
        (
            observation(engine(usage=0.5)),
            BOUNDS,
            FRESH,
            "KV demand of 1,024 tokens, at 75% of 2,048 per replica, needs 1",
        ),
    ],
)
def test_the_reason_is_a_sentence_with_its_numbers(observation, bounds, state, reason):
    assert decide(observation, state, 1000.0, bounds=bounds)[0].reason == reason


def test_down_needs_the_whole_delay_without_a_break():
    calm, busy = (
        observation(engine(), engine()),
        observation(engine(usage=0.9), engine(usage=0.2)),
    )
    _, state = decide(calm, FRESH, 0.0)
    for now in range(10, 60, 10):
        decision, state = decide(calm, state, float(now))
        assert (decision.desired, decision.code) == (2, "ScaleDownDelayed")
    _, state = decide(busy, state, 59.0)  # 2,253 of 1,536 tokens: two are needed
    for now in range(60, 120, 10):
        decision, state = decide(calm, state, float(now))
        assert decision.desired == 2
    decision, state = decide(calm, state, 120.0)
    assert (decision.desired, decision.code) == (1, "ScaleDown")


def test_a_gap_in_the_looks_begins_the_delay_anew():
    calm = observation(engine(), engine())
    _, state = decide(calm, FRESH, 0.0)
    late = MAX_GAP_S + 60
    assert decide(calm, state, late)[0].desired == 2


def test_down_goes_one_at_a_time_and_each_is_earned():
    state, count, changes = FRESH, 4, []
    for now in range(0, 400, 2):
        decision, state = decide(observation(*[engine()] * count), state, float(now))
        if decision.desired != count:
            changes.append((now, decision.desired))
            count = decision.desired
    assert changes == [(60, 3), (120, 2), (180, 1)]


def test_the_queue_of_fewer_replicas_is_looked_at_before_they_are_fewer():
    """8 waiting on 2 replicas are fine; on 1 they would not be."""
    fine = observation(engine(waiting=4), engine(waiting=4))
    decision, state = decide(fine, ScaleDownDelay(0.0, 999.0), 1000.0)
    assert (decision.desired, state.low_since_s) == (2, None)


readings = st.builds(
    engine,
    usage=st.floats(0, 1),
    waiting=st.integers(0, 500),
    running=st.integers(0, 64),
    pending=st.integers(0, 100_000),
    capacity=st.sampled_from([512, 2048, 100_000]),
)
observations = st.builds(
    lambda readings, missing, provisioned: observation(
        *readings, *missing, provisioned=provisioned
    ),
    st.lists(readings, max_size=5),
    st.lists(st.just(LOST), max_size=2),
    st.integers(0, 12),
)
all_bounds = st.tuples(st.integers(1, 10), st.integers(1, 10)).map(lambda b: Bounds(*sorted(b)))
rules = st.builds(
    KvRule,
    kv_utilization_target=st.floats(0.1, 0.95),
    queue_length_target=st.integers(1, 20),
    scale_down_delay_s=st.floats(0, 100),
)
states = st.builds(
    ScaleDownDelay, low_since_s=st.none() | st.floats(0, 1000), seen_s=st.floats(0, 1000)
)


@given(rules, all_bounds, observations, states)
def test_the_number_is_within_bounds_and_is_the_trails_last(rule, bounds, observation, state):
    decision, after = decide(observation, state, 1000.0, rule=rule, bounds=bounds)
    assert bounds.min_replicas <= decision.desired <= bounds.max_replicas
    assert decision.trail[-1].replicas == decision.desired
    assert decision.reason
    assert after.seen_s == 1000.0


@given(rules, all_bounds, observations, states)
def test_incomplete_metrics_never_shrink_it(rule, bounds, observation, state):
    lost = PodView("lost", "Ready", 0.0, 1.0, LOST)
    blind = replace(observation, pods=(lost, *observation.pods))
    decision, _ = decide(blind, state, 1000.0, rule=rule, bounds=bounds)
    assert decision.desired >= min(observation.provisioned, bounds.max_replicas)


@given(rules, all_bounds, observations, states)
def test_it_never_drops_by_more_than_one_within_bounds(rule, bounds, observation, state):
    decision, _ = decide(observation, state, 1000.0, rule=rule, bounds=bounds)
    assert decision.desired >= min(observation.provisioned - 1, bounds.max_replicas)


@given(
    rules, all_bounds, observations, states,
    st.integers(0, 4), st.floats(0, 1), st.integers(0, 10_000), st.integers(0, 100),
)  # fmt: skip
def test_more_load_never_asks_for_fewer(
    rule, bounds, observation, state, index, usage, pending, waiting
):
    if not observation.readings:
        return
    pods = list(observation.pods)
    pod = pods[index % len(observation.readings)]
    heavier = replace(
        pod.reading,
        kv_usage=max(usage, pod.reading.kv_usage),
        prefill_tokens_pending=pod.reading.prefill_tokens_pending + pending,
        waiting=pod.reading.waiting + waiting,
    )
    pods[index % len(observation.readings)] = replace(pod, reading=heavier)
    more = replace(observation, pods=tuple(pods))
    before, _ = decide(observation, state, 1000.0, rule=rule, bounds=bounds)
    after, _ = decide(more, state, 1000.0, rule=rule, bounds=bounds)
    assert after.desired >= before.desired


@given(rules, all_bounds, observations)
def test_a_decision_that_is_carried_out_is_not_changed_again_at_once(rule, bounds, observation):
    """When `provisioned` follows the decision, the next decision is the same."""
    first, state = decide(observation, FRESH, 1000.0, rule=rule, bounds=bounds)
    carried_out = replace(observation, provisioned=first.desired)
    second, _ = decide(carried_out, state, 1000.0 + 1e-3, rule=rule, bounds=bounds)
    assert second.desired == first.desired or rule.scale_down_delay_s < 1


@given(rules, all_bounds, observations, states)
def test_no_decision_depends_on_when_it_is_made_but_for_the_delay(rule, bounds, observation, state):
    low = None if state.low_since_s is None else state.low_since_s + 500.0
    shifted = ScaleDownDelay(low, (state.seen_s or 0.0) + 500.0)
    one, _ = decide(observation, state, 1000.0, rule=rule, bounds=bounds)
    two, _ = decide(observation, shifted, 1500.0, rule=rule, bounds=bounds)
    if state.low_since_s is None or math.isclose(
        1000.0 - state.low_since_s, rule.scale_down_delay_s, abs_tol=1e-6
    ):
        return
    assert two.desired == one.desired


@pytest.mark.parametrize(
    ("age_s", "expected", "first"), [(7.0, 3, "source"), (STALE_S, 3, "source"), (21.0, 1, "blind")]
)
def test_what_prometheus_tells_counts_while_it_is_fresh(age_s, expected, first):
    reading = engine(0.1, waiting=11, running=1, at_s=1000.0 - age_s, source="Prometheus")
    decision, _ = RULE.decide(None, BOUNDS, observation(reading, now_s=1000.0), FRESH)
    assert (decision.desired, decision.trail[0].step) == (expected, first)
    if first == "source":
        told = f"numbers of 1 of 1 engines are Prometheus', up to {age_s:.0f} s old"
        assert decision.trail[0].note == told
    else:
        assert "its numbers are 1 s too old" in decision.reason
