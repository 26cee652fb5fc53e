"""The scaling law: tables with numbers, and what must hold for every input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling import (
    Decision,
    EngineSample,
    Missing,
    Observation,
    ScalingState,
    decide,
)
from penstock.core.service import ScalingSpec

SPEC = ScalingSpec(
    mode="Active",
    min_replicas=1,
    max_replicas=10,
    kv_utilization_target=0.75,
    queue_target=4,
    scale_down_delay_s=60,
)


def engine(
    pod: str = "a", *, kv: float = 0.0, waiting: int = 0, pending: int = 0, capacity: int = 1000
) -> EngineSample:
    return EngineSample(pod, 1, waiting, kv, capacity, pending)


def once(
    *samples: EngineSample | Missing, provisioned: int | None = None, spec: ScalingSpec = SPEC
) -> Decision:
    good = tuple(s for s in samples if isinstance(s, EngineSample))
    missing = tuple(s for s in samples if isinstance(s, Missing))
    count = len(samples) if provisioned is None else provisioned
    return decide(spec, Observation(good, missing, count), ScalingState(), 0.0)[0]


@pytest.mark.parametrize(
    ("samples", "provisioned", "desired", "code"),
    [
        pytest.param([engine(kv=0.5)], 1, 1, "Steady", id="one-half-full-engine-is-enough"),
        pytest.param([engine(kv=0.76)], 1, 2, "Up", id="above-the-target-asks-for-one-more"),
        pytest.param([engine(kv=1.0, pending=1000)], 1, 3, "Up", id="waiting-tokens-count"),
        pytest.param([engine(waiting=4)], 1, 1, "Steady", id="a-queue-at-its-target-is-fine"),
        pytest.param([engine(waiting=5)], 1, 2, "Up", id="a-queue-beyond-its-target"),
        pytest.param([engine(waiting=12)], 1, 3, "Up", id="each-further-target-one-more"),
        pytest.param([engine(waiting=12)], 3, 3, "Steady", id="starting-replicas-are-credited"),
        pytest.param([engine(kv=1, pending=60_000)], 2, 6, "Up", id="slew-limits-one-step"),
        pytest.param([engine(kv=1, pending=60_000)], 8, 10, "Up", id="max-bounds"),
        pytest.param([engine()], 1, 1, "Steady", id="min-bounds"),
        pytest.param([engine()], 3, 3, "WaitingToGoDown", id="down-waits-first"),
    ],
)
def test_one_decision(
    samples: list[EngineSample], provisioned: int, desired: int, code: str
) -> None:
    decision = once(*samples, provisioned=provisioned)
    assert (decision.desired, decision.reason_code) == (desired, code)
    assert decision.valid


def test_the_reason_carries_the_numbers_and_the_bound() -> None:
    decision = once(engine(kv=1.0, pending=9000, capacity=1000), provisioned=8)
    assert decision.reason == (
        "10,000 tokens of KV demand need 14 replicas of 1,000 tokens at 75%; "
        "bounded by maxReplicas 10"
    )
    assert [entry.step for entry in decision.trail] == ["kv", "queue", "bounds"]


def test_no_metrics_at_all_hold() -> None:
    decision = once(Missing("a", "ConnectError"), provisioned=3)
    assert (decision.desired, decision.valid) == (3, False)
    assert "no usable metrics of a (ConnectError)" in decision.reason


def test_nothing_ready_holds() -> None:
    assert once(provisioned=2).desired == 2


def test_with_one_engine_silent_it_may_grow() -> None:
    assert once(engine(waiting=40), Missing("b", "timeout"), provisioned=2).desired > 2


def test_down_after_the_delay_one_at_a_time_and_never_below_the_peak_of_the_wait() -> None:
    state, replicas, seen = ScalingState(), 5, []
    for second in range(0, 400, 10):
        observation = Observation((engine(kv=0.1),) * replicas, (), replicas)
        decision, state = decide(SPEC, observation, state, float(second))
        replicas = decision.desired
        seen.append(replicas)
    steps = [(i * 10, n) for i, n in enumerate(seen) if i and seen[i - 1] != n]
    assert steps == [(60, 4), (120, 3), (180, 2), (240, 1)]


def test_a_burst_during_the_wait_starts_it_again() -> None:
    low = Observation((engine(), engine("b")), (), 2)
    high = Observation((engine(kv=0.9), engine("b", kv=0.9)), (), 2)
    _, state = decide(SPEC, low, ScalingState(), 0.0)
    _, state = decide(SPEC, high, state, 30.0)
    decision, state = decide(SPEC, low, state, 61.0)
    assert decision.desired == 2
    decision, _ = decide(SPEC, low, state, 121.0)
    assert decision.desired == 1


engines = st.builds(
    EngineSample,
    pod=st.sampled_from("abcdef"),
    running=st.integers(0, 100),
    waiting=st.integers(0, 500),
    kv_usage=st.floats(0, 1),
    kv_capacity_tokens=st.integers(1, 10**6),
    prefill_tokens_pending=st.integers(0, 10**6),
)
observations = st.builds(
    Observation,
    samples=st.lists(engines, max_size=6).map(tuple),
    missing=st.lists(st.builds(Missing, st.just("x"), st.just("gone")), max_size=2).map(tuple),
    provisioned=st.integers(0, 12),
)
states = st.builds(
    ScalingState, st.none() | st.floats(0, 1e6), st.integers(0, 10)
)  # fmt: skip
nows = st.floats(1e6, 2e6)


@given(observations, states, nows)
def test_always_within_bounds(seen: Observation, state: ScalingState, now: float) -> None:
    decision, _ = decide(SPEC, seen, state, now)
    assert SPEC.min_replicas <= decision.desired <= SPEC.max_replicas
    assert decision.trail[-1].replicas == decision.desired


@given(observations, states, nows)
def test_blindness_never_shrinks(seen: Observation, state: ScalingState, now: float) -> None:
    if seen.missing or not seen.samples:
        decision, _ = decide(SPEC, seen, state, now)
        assert decision.desired >= min(seen.provisioned, SPEC.max_replicas)


@given(observations, nows, st.integers(0, 10**6))
def test_more_work_never_means_fewer_replicas(
    seen: Observation, now: float, extra_tokens: int
) -> None:
    if not seen.samples:
        return
    first, *rest = seen.samples
    busier = EngineSample(
        first.pod, first.running, first.waiting + 3, first.kv_usage, first.kv_capacity_tokens,
        first.prefill_tokens_pending + extra_tokens,
    )  # fmt: skip
    more = Observation((busier, *rest), seen.missing, seen.provisioned)
    before, _ = decide(SPEC, seen, ScalingState(), now)
    after, _ = decide(SPEC, more, ScalingState(), now)
    assert after.desired >= before.desired


@given(st.integers(0, 30_000), st.integers(1, 10))
def test_constant_load_settles_and_stays(demand_tokens: int, start: int) -> None:
    """The same work, spread over however many replicas there are, leads to one number."""
    replicas, state, history = start, ScalingState(), []
    for second in range(0, 2000, 10):
        kv = min(1.0, demand_tokens / replicas / 1000)
        pending = max(0, demand_tokens - 1000 * replicas) // replicas
        sample = EngineSample("a", 1, 0, kv, 1000, pending)
        seen = Observation((sample,) * replicas, (), replicas)
        decision, state = decide(SPEC, seen, state, float(second))
        replicas = decision.desired
        history.append(replicas)
    assert len(set(history[100:])) == 1
