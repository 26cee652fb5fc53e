"""Replicas that a rate of arrivals keeps busy, and the resource that decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.learned.capacity import MAX_KV_USAGE, EngineLimits, Mix
from penstock.core.scaling.learned.footprint import MIN_SLACK, Demand, Footprint
from penstock.core.spec.objectives import MAX_WAIT_S, Objectives

# The model of test_capacity: 1,000 prompt tokens take 0.1 s, 200 output tokens over 1,100 KV tokens 0.022 s.
MODEL = IterationModel(0.020, 1e-4, 0.0, 1e-7)
MIX = Mix(1000, 1000, 200)
RELAXED = Objectives(3.0, 10.0)

rates = st.floats(0.0, 1e4)
demands = st.builds(Demand, st.floats(0.0, 1e6), rates)
footprints = st.builds(
    lambda kv, seqs, tpot_s: Footprint.of(
        MODEL, MIX, EngineLimits(kv, seqs), Objectives(3.0, tpot_s)
    ),
    st.sampled_from([20_000.0, 1e9]),
    st.sampled_from([4.0, 256.0]),
    st.sampled_from([0.05, 0.1, 10.0]),
)


def at_rate(rate: float) -> Demand:
    return Demand(rate * MIX.prompt_tokens, rate)


@pytest.mark.parametrize(
    ("kv_tokens", "seqs", "tpot_s", "limit"),
    [
        (1e9, 1e9, 0.1, "TPOT"),
        (1e9, 1e9, 10.0, "engine time"),
        (50_000, 1e9, 10.0, "KV cache"),
        (1e9, 10, 10.0, "batch size"),
    ],
)
def test_one_replica_holds_its_capacity(
    kv_tokens: float, seqs: float, tpot_s: float, limit: str
) -> None:
    """Whichever resource binds takes one replica, and the others less."""
    found = Footprint.of(MODEL, MIX, EngineLimits(kv_tokens, seqs), Objectives(3.0, tpot_s))
    rate = found.capacity.rate
    time = found.prompt_token * MIX.prompt_tokens + found.answer
    taken = {"time": time * rate, "KV cache": found.kv * rate, "batch size": found.batch * rate}
    assert found.capacity.limit == limit
    assert found.replicas(at_rate(rate)) == pytest.approx(1.0)
    binding = max(taken, key=lambda name: taken[name])
    assert binding == (limit if limit in taken else "time")
    assert sorted(taken.values())[-2] < 0.99


@given(footprint=footprints, demand=demands, factor=st.floats(0.0, 1e3))
def test_replicas_grow_in_proportion_to_the_demand(
    footprint: Footprint, demand: Demand, factor: float
) -> None:
    more = Demand(factor * demand.prompt_tokens, factor * demand.answers)
    expected = factor * footprint.replicas(demand)
    assert footprint.replicas(more) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(footprint=footprints, one=demands, other=demands)
def test_both_demands_take_no_more_than_their_sum_and_no_less_than_each(
    footprint: Footprint, one: Demand, other: Demand
) -> None:
    both = Demand(one.prompt_tokens + other.prompt_tokens, one.answers + other.answers)
    apart = footprint.replicas(one), footprint.replicas(other)
    taken = footprint.replicas(both)
    assert max(apart) * (1 - 1e-9) <= taken <= sum(apart) * (1 + 1e-9) + 1e-300


def test_prompts_alone_are_engine_time() -> None:
    """50,000 tokens/s are 5 s of engine time each second, of which a replica has 0.96."""
    footprint = Footprint.of(MODEL, MIX, EngineLimits(100, 1), RELAXED)
    assert footprint.replicas(Demand(50_000, 0.0)) == pytest.approx(5 / 0.96)


def test_cached_prompt_tokens_take_no_engine_time() -> None:
    limits = EngineLimits(1e9, 1e9)
    half = Footprint.of(MODEL, Mix(1000, 500, 200), limits, RELAXED)
    whole = Footprint.of(MODEL, MIX, limits, RELAXED)
    prompts = Demand(1000.0, 0.0)
    assert half.replicas(prompts) == pytest.approx(whole.replicas(prompts) / 2)


def test_sequences_that_wait_take_their_places_at_once() -> None:
    batch = Footprint.of(MODEL, MIX, EngineLimits(1e9, 10), RELAXED)
    assert batch.waiting_replicas(0.0, 25.0, 100.0) == pytest.approx(2.5)
    kv = Footprint.of(MODEL, MIX, EngineLimits(44_000, 1e9), RELAXED)
    held = 25 * MIX.held_tokens / (MAX_KV_USAGE * 44_000)
    assert kv.waiting_replicas(0.0, 25.0, 100.0) == pytest.approx(held)


def test_prompts_that_wait_are_worked_off_within_the_time_and_the_objective() -> None:
    """A million tokens are 100 s of engine time: a replica has 0.96 of a second, for 97 s and the slack."""
    found = Footprint.of(MODEL, MIX, EngineLimits(1e9, 1e9), RELAXED)
    within = found.waiting_replicas(1e6, 0.0, 97.0)
    assert within == pytest.approx(100 / 0.96 / (97 + found.slack_s))
    assert found.waiting_replicas(1e6, 0.0, 47.0) > within
    assert found.waiting_replicas(0.0, 0.0, 97.0) == 0


@pytest.mark.parametrize(
    ("objectives", "least_s", "most_s"),
    [
        # The iteration of a prompt takes 0.12 s at an idle engine, and 1 / 0.52 of that if it is 96% busy.
        (Objectives(3.0, 10.0), 2.769, 2.770),
        # A prompt that takes nearly all of its objective may still wait for a tenth of it.
        (Objectives(0.15, 10.0), MIN_SLACK * 0.15, MIN_SLACK * 0.15),
        # A prompt that takes longer even at an idle engine may wait for as long as its own prefill.
        (Objectives(0.05, 10.0), 0.119, 0.121),
        # No objective for the first token.
        (Objectives(tpot_s=0.1), MAX_WAIT_S - 0.2, MAX_WAIT_S - 0.1),
    ],
)
def test_slack_is_what_the_prefill_leaves_of_the_objective(
    objectives: Objectives, least_s: float, most_s: float
) -> None:
    slack_s = Footprint.of(MODEL, MIX, EngineLimits(1e9, 1e9), objectives).slack_s
    assert least_s <= slack_s <= most_s


@pytest.mark.parametrize(
    ("objectives", "missed"),
    [
        (Objectives(0.1201, 0.0202), ""),
        (
            Objectives(0.05, 0.1),
            "the mean request has a TTFT of 120ms on an idle engine, and the objective is 50ms",
        ),
        (
            Objectives(3.0, 0.01),
            "the mean request has a TPOT of 20.1ms on an idle engine, and the objective is 10ms",
        ),
        (
            Objectives(0.05, 0.01),
            "the mean request has a TTFT of 120ms on an idle engine, and the objective is 50ms; "
            "the mean request has a TPOT of 20.1ms on an idle engine, and the objective is 10ms",
        ),
        (Objectives(tpot_s=0.1), ""),
    ],
)
def test_objectives_that_an_idle_engine_misses_are_named(
    objectives: Objectives, missed: str
) -> None:
    assert Footprint.of(MODEL, MIX, EngineLimits(1e9, 1e9), objectives).unattainable == missed


def test_requests_that_are_larger_vary_more() -> None:
    """Twice the tokens at half the rate is the same load, in larger parts."""
    small = Footprint.of(MODEL, MIX, EngineLimits(1e9, 1e9), RELAXED)
    large = Footprint.of(MODEL, Mix(2000, 2000, 400), EngineLimits(1e9, 1e9), RELAXED)
    assert large.noise > 1.5 * small.noise
