"""Fixtures: build observations from numbers and run a rule over them."""

from dataclasses import replace

import pytest
from tests.sim_baselines.engine_profile import PROFILE

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

BUCKETS = (0.1, 0.5, 1.0, 3.0, 10.0)
LOST = Missing("pod", "timed out")
BOUNDS, GOAL = Bounds(1, 20), Objectives(ttft_s=3.0, tpot_s=0.1)


def histogram(*values):
    counts = [0] * (len(BUCKETS) + 1)
    for value in values:
        counts[sum(value > bound for bound in BUCKETS)] += 1
    return Histogram(BUCKETS, tuple(counts), float(sum(values)))


def an_engine(**numbers):
    """Reading of an idle engine with some values replaced."""
    empty = EngineReading(
        at_s=0.0,
        running=0,
        waiting=0,
        kv_usage=0.0,
        kv_capacity_tokens=100_000,
        prefill_tokens_pending=0,
        prompt_tokens=0,
        cached_tokens=0,
        output_tokens=0,
        steps=0,
        finished=0,
        output_tokens_finished=0,
        preemptions=0,
        ttft_s=histogram(),
        itl_s=histogram(),
    )
    return replace(empty, **numbers)


def a_gateway(at_s=0.0, **numbers):
    """Reading of an idle gateway with some values replaced."""
    empty = GatewayReading(
        at_s=at_s,
        queued=0,
        queued_prompt_tokens=0,
        in_flight=0,
        in_flight_prefill_tokens=0,
        oldest_wait_s=0.0,
        arrivals=0,
        prompt_tokens=0,
        ended=0,
        output_tokens=0,
        attended_tokens=0,
        shed=0,
        failed=0,
        late=0,
        ttft_s=histogram(),
        tpot_s=histogram(),
    )
    return replace(empty, **numbers)


def observed(now_s=0.0, engines=(), *, missing=0, starting=0, provisioned=None, gateway=None):
    """Observation with ready pods a0.. with readings, m0.. without one, and starting pods s0.."""
    pods = [PodView(f"a{i}", "Ready", 0.0, 0.0, reading) for i, reading in enumerate(engines)]
    pods += [PodView(f"m{i}", "Ready", 0.0, 0.0, LOST) for i in range(missing)]
    pods += [PodView(f"s{i}", "Starting", now_s, None, None) for i in range(starting)]
    count = len(pods) if provisioned is None else provisioned
    return Observation(now_s, tuple(pods), count, gateway)


def _decide_all(rule, observations, bounds=BOUNDS, objectives=GOAL, state=None):
    """Decisions of a rule on these observations, and its final state."""
    state = rule.initial() if state is None else state
    decisions = []
    for observation in observations:
        decision, state = rule.decide(objectives, bounds, observation, state)
        decisions.append(decision)
    return decisions, state


def _simulate(rule, observe, seconds, start=1, bounds=BOUNDS):
    """Replicas over time if each decision takes effect at once. observe: (now, replicas) -> observation."""
    state, replicas, now, course = rule.initial(), start, 0.0, []
    while now <= seconds:
        decision, state = rule.decide(GOAL, bounds, observe(now, replicas), state)
        replicas = decision.desired
        course.append(replicas)
        now += rule.period_s
    return course


@pytest.fixture
def engine():
    return an_engine


@pytest.fixture
def gateway():
    return a_gateway


@pytest.fixture
def observe_pods():
    return observed


@pytest.fixture
def decide_all():
    return _decide_all


@pytest.fixture
def simulate():
    return _simulate


@pytest.fixture
def latencies():
    return histogram


@pytest.fixture
def profile():
    return PROFILE
