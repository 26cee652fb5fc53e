"""Properties of every rule: bounds, lost readings, determinism, a code for each decision."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
)
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.oracle import Oracle
from penstock.sim.baselines.registry import PUBLISHED
from penstock.sim.policies import make
from penstock.sim.scenario import Service

SUMS_MISSING_AS_ZERO = {"keda-queue-guard", "llmd-token-aware", "llmd-slo-aware-measured"}
KNOWS_ANYWAY = {"static"}
LOST = Missing("somebody", "timed out")
SERVICE = Service.model_validate({
    "profile": "llama-3.1-8b-a100", "ttft_s": 3.0,
    "workload": {"kind": "trace", "path": "none", "format": "azure"},
})  # fmt: skip


def rules():
    made = {name: make(name, {}, SERVICE, ()) for name in PUBLISHED}
    return {**made, "oracle": Oracle(((0.0, 3), (300.0, 6)), 60.0)}


counts = st.integers(0, 2000)
histograms = st.lists(counts, min_size=4, max_size=4).map(
    lambda c: Histogram((0.1, 1.0, 5.0), tuple(c), float(sum(c)))
)
engines = st.builds(
    EngineReading,
    at_s=st.just(0.0),
    running=st.integers(0, 64),
    waiting=st.integers(0, 500),
    kv_usage=st.floats(0, 1),
    kv_capacity_tokens=st.just(100_000),
    prefill_tokens_pending=st.integers(0, 10**6),
    prompt_tokens=counts,
    cached_tokens=counts,
    output_tokens=counts,
    steps=counts,
    finished=counts,
    output_tokens_finished=counts,
    preemptions=counts,
    ttft_s=histograms,
    itl_s=histograms,
)
gateways = st.builds(
    GatewayReading,
    at_s=st.floats(0, 1000),
    queued=st.integers(0, 500),
    queued_prompt_tokens=st.integers(0, 10**6),
    in_flight=st.integers(0, 500),
    in_flight_prefill_tokens=st.integers(0, 10**6),
    oldest_wait_s=st.just(0.0),
    arrivals=counts,
    prompt_tokens=counts,
    ended=counts,
    output_tokens=counts,
    shed=counts,
    failed=counts,
    ttft_s=histograms,
    tpot_s=histograms,
)
ready = st.one_of(engines, st.just(LOST))
tick = st.tuples(
    st.lists(ready, max_size=4), st.integers(0, 3), st.one_of(st.none(), st.just(LOST), gateways)
)


def observation_of(now_s, readings, num_starting, gateway, provisioned=None):
    pods = tuple(PodView(f"a{i}", "Ready", 0.0, 0.0, r) for i, r in enumerate(readings))
    pods += tuple(PodView(f"s{i}", "Starting", 0.0, None, None) for i in range(num_starting))
    return Observation(now_s, pods, len(pods) if provisioned is None else provisioned, gateway)


@pytest.mark.parametrize("name", rules())
@given(ticks=st.lists(tick, min_size=1, max_size=12), low=st.integers(0, 3), more=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_bounds_hold_and_the_same_past_gives_the_same_answer(name, ticks, low, more):
    rule, bounds = rules()[name], Bounds(low, low + more)
    state, again = rule.initial(), rule.initial()
    for i, (readings, num_starting, gateway) in enumerate(ticks):
        observation = observation_of(i * max(5.0, rule.period_s), readings, num_starting, gateway)
        decision, state = rule.decide(Objectives(3.0, 0.1), bounds, observation, state)
        second, again = rule.decide(Objectives(3.0, 0.1), bounds, observation, again)
        assert bounds.min_replicas <= decision.desired <= bounds.max_replicas
        assert (decision, state) == (second, again)
        assert re.fullmatch(r"([A-Z][a-z0-9]*)+", decision.code)
        assert decision.reason
        assert not decision.trail or decision.trail[-1].replicas == decision.desired


@pytest.mark.parametrize("name", [n for n in rules() if n not in KNOWS_ANYWAY | {"oracle"}])
def test_fifteen_minutes_without_any_reading(name):
    """Rules that sum scale down to the minimum, as published; the others hold."""
    rule, state, replicas, now = rules()[name], rules()[name].initial(), 4, 0.0
    while now <= 900:
        observation = observation_of(now, [LOST] * replicas, 0, LOST)
        decision, state = rule.decide(Objectives(3.0, 0.1), Bounds(1, 8), observation, state)
        replicas = decision.desired
        now += rule.period_s
    assert (replicas < 4) == (name in SUMS_MISSING_AS_ZERO)


def test_unknown_names_and_knobs_are_refused():
    with pytest.raises(ValueError, match=r"no policy 'hpa'; there are: .*static"):
        make("hpa", {}, SERVICE, ())
    with pytest.raises(ValueError, match="has no knob 'tarjet'"):
        make("hpa-kv", {"tarjet": "1"}, SERVICE, ())
