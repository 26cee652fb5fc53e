"""Decisions of the KV rule, with their reasons."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling import signals
from penstock.core.scaling.by_kv import (
    MAX_GAP_S,
    EngineSample,
    Missing,
    Observation,
    ScalingState,
    decide,
)
from penstock.core.scaling.signals import STALE_S, EngineReading, Histogram, PodView
from penstock.core.spec.service import ScalingSpec

SPEC = ScalingSpec(
    mode="Active",
    min_replicas=1,
    max_replicas=10,
    kv_utilization_target=0.75,
    queue_length_target=4,
    scale_down_delay_s=60.0,
)
FRESH = ScalingState()


def sample(pod="a", usage=0.0, waiting=0, running=0, pending=0, capacity=2048):
    return EngineSample(pod, running, waiting, usage, capacity, pending)


def observation(*samples, provisioned=None, missing=()):
    count = len(samples) + len(missing) if provisioned is None else provisioned
    return Observation(tuple(samples), tuple(missing), count)


def desired(observation, spec=SPEC, state=FRESH, now=0.0):
    return decide(spec, observation, state, now)[0].desired


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([sample()], 1),
        ([sample(usage=0.5)], 1),
        ([sample(usage=0.75)], 1),  # exactly the target: 1,536 of 1,536 tokens
        ([sample(usage=0.76)], 2),
        ([sample(usage=1.0)], 2),
        ([sample(usage=1.0, pending=1024)], 2),  # 3,072 = 2 x 1,536
        ([sample(usage=1.0, pending=1025)], 3),
        ([sample(usage=1.0, pending=5000)], 5),
        ([sample("a", usage=0.8), sample("b", usage=0.7)], 2),
        ([sample("a", usage=0.8), sample("b", usage=0.71)], 3),
        ([sample("a", usage=0.2, capacity=1000), sample("b", usage=1.0, capacity=3000)], 3),
    ],
)
def test_by_kv(samples, expected):
    assert desired(observation(*samples)) == expected


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        (0, 0, 1), (4, 16, 1), (5, 16, 2), (24, 16, 2), (25, 16, 3),  # each new one takes 16 + 4
        (5, 0, 2), (9, 0, 2), (10, 0, 3),
    ],
)  # fmt: skip
def test_by_queue(waiting, running, expected):
    assert desired(observation(sample(waiting=waiting, running=running))) == expected


def test_the_larger_need_decides():
    both = observation(sample(usage=1.0, waiting=100, running=4))
    decision, _ = decide(SPEC, both, FRESH, 0.0)
    assert [(entry.step, entry.replicas) for entry in decision.trail] == [
        ("kv", 2), ("queue", 13), ("need", 13), ("starting", 13), ("up", 6), ("bounds", 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ready", "provisioned", "limit"), [(1, 1, 6), (1, 6, 6), (1, 8, 8), (3, 3, 10), (3, 6, 10)]
)
def test_up_is_bounded_by_what_is_ready(ready, provisioned, limit):
    """The number does not run away while engines start."""
    samples = [sample(str(n), usage=1.0, pending=100_000) for n in range(ready)]
    assert desired(observation(*samples, provisioned=provisioned)) == limit


def test_replicas_that_start_are_not_asked_for_again():
    observed = observation(sample(usage=1.0, pending=2000), provisioned=3)
    decision, _ = decide(SPEC, observed, FRESH, 0.0)
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
    spec = replace(SPEC, min_replicas=bounds[0], max_replicas=bounds[1])
    decision, _ = decide(spec, observation(sample(usage=usage)), FRESH, 0.0)
    assert (decision.desired, decision.code) == (expected, code)


def test_a_lower_maximum_is_obeyed_at_once_even_without_metrics():
    spec = replace(SPEC, max_replicas=2)
    assert desired(observation(*[sample(str(n), usage=0.7) for n in range(5)]), spec) == 2
    decision, _ = decide(spec, observation(provisioned=5), FRESH, 0.0)
    assert (decision.desired, decision.code, decision.valid) == (2, "Bounded", True)


LOST = Missing("b", "ReadTimeout")


@pytest.mark.parametrize(
    ("observation", "expected", "code"),
    [
        (observation(provisioned=3), 3, "MetricsMissing"),
        (observation(missing=[LOST], provisioned=3), 3, "MetricsMissing"),
        (observation(sample(), missing=[LOST], provisioned=3), 3, "MetricsMissing"),
        (observation(sample(usage=0.9), missing=[LOST], provisioned=2), 2, "MetricsMissing"),
        (observation(sample(usage=1.0, pending=4000), missing=[LOST], provisioned=2), 4, "ScaleUp"),
    ],
)
def test_missing_metrics_hold_or_grow(observation, expected, code):
    decision, state = decide(SPEC, observation, ScalingState(0.0, 999.0), 1000.0)
    assert (decision.desired, decision.code) == (expected, code)
    assert decision.valid == (code != "MetricsMissing")
    assert state.low_since_s is None


@pytest.mark.parametrize(
    ("observation", "spec", "state", "reason"),
    [
        (
            observation(sample(usage=1.0, pending=3162)),
            replace(SPEC, max_replicas=3),
            FRESH,
            "KV demand of 5,210 tokens, at 75% of 2,048 per replica, needs 4; bounded by "
            "maxReplicas 3",
        ),
        (
            observation(sample(waiting=25, running=16)),
            SPEC,
            FRESH,
            "25 waiting requests, 1 x 4 allowed; each replica runs 16: 3 needed",
        ),
        (
            observation(sample(), missing=[LOST, LOST], provisioned=3),
            SPEC,
            FRESH,
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; no usable metrics of b "
            "(ReadTimeout) and 1 more; 3 replicas are not fewer",
        ),
        (observation(provisioned=2), SPEC, FRESH, "no engine is ready; 2 replicas are held"),
        (
            observation(sample(), sample("b")),
            SPEC,
            ScalingState(970.0, 998.0),
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; 2 are held: fewer are "
            "enough for 30 of 60 s",
        ),
        (
            observation(sample(), sample("b")),
            SPEC,
            ScalingState(940.0, 998.0),
            "KV demand of 0 tokens, at 75% of 2,048 per replica, needs 0; fewer than 2 were enough "
            "for 60 s",
        ),
        (
            observation(sample(usage=0.5)),
            SPEC,
            FRESH,
            "KV demand of 1,024 tokens, at 75% of 2,048 per replica, needs 1",
        ),
    ],
)
def test_the_reason_is_a_sentence_with_its_numbers(observation, spec, state, reason):
    assert decide(spec, observation, state, 1000.0)[0].reason == reason


def test_down_needs_the_whole_delay_without_a_break():
    calm, busy = (
        observation(sample(), sample("b")),
        observation(sample(usage=0.9), sample("b", usage=0.2)),
    )
    _, state = decide(SPEC, calm, FRESH, 0.0)
    for now in range(10, 60, 10):
        decision, state = decide(SPEC, calm, state, float(now))
        assert (decision.desired, decision.code) == (2, "ScaleDownDelayed")
    _, state = decide(SPEC, busy, state, 59.0)  # 2,253 of 1,536 tokens: two are needed
    for now in range(60, 120, 10):
        decision, state = decide(SPEC, calm, state, float(now))
        assert decision.desired == 2
    decision, state = decide(SPEC, calm, state, 120.0)
    assert (decision.desired, decision.code) == (1, "ScaleDown")


def test_a_gap_in_the_looks_begins_the_delay_anew():
    calm = observation(sample(), sample("b"))
    _, state = decide(SPEC, calm, FRESH, 0.0)
    late = MAX_GAP_S + 60
    assert decide(SPEC, calm, state, late)[0].desired == 2


def test_down_goes_one_at_a_time_and_each_is_earned():
    state, count, changes = FRESH, 4, []
    for now in range(0, 400, 2):
        samples = [sample(str(n)) for n in range(count)]
        decision, state = decide(SPEC, observation(*samples), state, float(now))
        if decision.desired != count:
            changes.append((now, decision.desired))
            count = decision.desired
    assert changes == [(60, 3), (120, 2), (180, 1)]


def test_the_queue_of_fewer_replicas_is_looked_at_before_they_are_fewer():
    """8 waiting on 2 replicas are fine; on 1 they would not be."""
    fine = observation(sample(waiting=4), sample("b", waiting=4))
    decision, state = decide(SPEC, fine, ScalingState(0.0, 999.0), 1000.0)
    assert (decision.desired, state.low_since_s) == (2, None)


samples = st.builds(
    EngineSample,
    pod=st.just("p"),
    running=st.integers(0, 64),
    waiting=st.integers(0, 500),
    kv_usage=st.floats(0, 1),
    kv_capacity_tokens=st.sampled_from([512, 2048, 100_000]),
    prefill_tokens_pending=st.integers(0, 100_000),
)
observations = st.builds(
    Observation,
    samples=st.lists(samples, max_size=5).map(tuple),
    missing=st.lists(st.just(LOST), max_size=2).map(tuple),
    provisioned=st.integers(0, 12),
)
bounds = st.tuples(st.integers(1, 10), st.integers(1, 10)).map(sorted)
specs = st.builds(
    ScalingSpec,
    mode=st.just("Active"),
    min_replicas=st.just(1),
    max_replicas=st.just(1),
    kv_utilization_target=st.floats(0.1, 0.95),
    queue_length_target=st.integers(1, 20),
    scale_down_delay_s=st.floats(0, 100),
).flatmap(lambda spec: bounds.map(lambda b: replace(spec, min_replicas=b[0], max_replicas=b[1])))
states = st.builds(
    ScalingState, low_since_s=st.none() | st.floats(0, 1000), seen_s=st.floats(0, 1000)
)


@given(specs, observations, states)
def test_the_number_is_within_bounds_and_is_the_trails_last(spec, observation, state):
    decision, after = decide(spec, observation, state, 1000.0)
    assert spec.min_replicas <= decision.desired <= spec.max_replicas
    assert decision.trail[-1].replicas == decision.desired
    assert decision.reason
    assert after.seen_s == 1000.0


@given(specs, observations, states)
def test_incomplete_metrics_never_shrink_it(spec, observation, state):
    blind = replace(observation, missing=(LOST, *observation.missing))
    decision, _ = decide(spec, blind, state, 1000.0)
    assert decision.desired >= min(observation.provisioned, spec.max_replicas)


@given(specs, observations, states)
def test_it_never_drops_by_more_than_one_within_bounds(spec, observation, state):
    decision, _ = decide(spec, observation, state, 1000.0)
    assert decision.desired >= min(observation.provisioned - 1, spec.max_replicas)


@given(
    specs, observations, states,
    st.integers(0, 4), st.floats(0, 1), st.integers(0, 10_000), st.integers(0, 100),
)  # fmt: skip
def test_more_load_never_asks_for_fewer(spec, observation, state, index, usage, pending, waiting):
    if not observation.samples:
        return
    index %= len(observation.samples)
    old = observation.samples[index]
    new = replace(
        old,
        kv_usage=max(usage, old.kv_usage),
        prefill_tokens_pending=old.prefill_tokens_pending + pending,
        waiting=old.waiting + waiting,
    )
    heavier = list(observation.samples)
    heavier[index] = new
    before = decide(spec, observation, state, 1000.0)[0].desired
    after = decide(spec, replace(observation, samples=tuple(heavier)), state, 1000.0)[0].desired
    assert after >= before


@given(specs, observations)
def test_a_decision_that_is_carried_out_is_not_changed_again_at_once(spec, observation):
    """When `provisioned` follows the decision, the next decision is the same."""
    first, state = decide(spec, observation, FRESH, 1000.0)
    carried_out = replace(observation, provisioned=first.desired)
    second, _ = decide(spec, carried_out, state, 1000.0 + 1e-3)
    assert second.desired == first.desired or spec.scale_down_delay_s < 1


@given(specs, observations, states)
def test_no_decision_depends_on_when_it_is_made_but_for_the_delay(spec, observation, state):
    low = None if state.low_since_s is None else state.low_since_s + 500.0
    shifted = ScalingState(low, (state.seen_s or 0.0) + 500.0)
    one, _ = decide(spec, observation, state, 1000.0)
    two, _ = decide(spec, observation, shifted, 1500.0)
    if state.low_since_s is None or math.isclose(
        1000.0 - state.low_since_s, spec.scale_down_delay_s, abs_tol=1e-6
    ):
        return
    assert two.desired == one.desired


@pytest.mark.parametrize(
    ("age_s", "expected", "first"), [(7.0, 3, "source"), (STALE_S, 3, "source"), (21.0, 1, "blind")]
)
def test_what_prometheus_tells_counts_while_it_is_fresh(age_s, expected, first):
    empty = Histogram((1.0,), (0, 0), 0.0)
    reading = EngineReading(
        at_s=1000.0 - age_s, running=1, waiting=11, kv_usage=0.1, kv_capacity_tokens=2048,
        prefill_tokens_pending=0, prompt_tokens=0, cached_tokens=0, output_tokens=0, steps=0,
        finished=0, output_tokens_finished=0, preemptions=0, ttft_s=empty, itl_s=empty,
        source="Prometheus",
    )  # fmt: skip
    pod = PodView("a", "Ready", 0.0, 1.0, reading)
    observation = Observation.of(signals.Observation(1000.0, (pod,), 1))
    decision, _ = decide(SPEC, observation, FRESH, 1000.0)
    assert (decision.desired, decision.trail[0].step) == (expected, first)
    if first == "source":
        told = f"numbers of 1 of 1 engines are Prometheus', up to {age_s:.0f} s old"
        assert decision.trail[0].note == told
    else:
        assert "its numbers are 1 s too old" in decision.reason
