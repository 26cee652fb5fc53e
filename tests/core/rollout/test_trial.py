"""The state of a canary's judge: stored bit for bit, and shown in the status."""

import json
import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.schema.rollout_status import Evidence
from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.bins import EMPTY_BINS, EMPTY_TPOT_BINS
from penstock.core.canary.evidence import Block, History
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.metric_gate import MetricGateState
from penstock.core.canary.moments import Moments
from penstock.core.rollout.trial import (
    VERSION,
    Trial,
    evidence,
    from_record,
    metric_gates,
    to_record,
)
from penstock.core.spec.canary import CanarySpec

SPEC = CanarySpec()


@st.composite
def arms(draw):
    requests = draw(st.integers(0, 30))
    errors = draw(st.integers(0, requests // 10))
    logs = draw(st.lists(st.floats(-3, 3), min_size=requests, max_size=requests))
    ttft = (Moments.of(logs), *EMPTY_BINS[1:])
    tpot = (Moments.of(logs), *EMPTY_TPOT_BINS[1:])
    return replace(
        NO_REQUESTS, requests=requests, errors=errors, ttft=ttft, tpot=tpot, output=Moments.of(logs)
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(arms(), arms()), max_size=15))
def test_a_trial_goes_on_from_its_record_as_if_nothing_had_been(pairs):
    kept = state = JudgeState.begin(SPEC)
    for canary, control in pairs:
        block = Block(length_s=10.0, canary=canary, control=control)
        verdict, state = judge(SPEC, state, block)
        record = json.loads(json.dumps(to_record(Trial(VERSION, "d1", kept)), allow_nan=False))
        restored = from_record(record, "d1")
        assert judge(SPEC, restored.state, block) == (verdict, state)
        kept = state
        for said in evidence(SPEC, state):
            json.dumps(said, allow_nan=False)
            read = Evidence.model_validate(said)
            assert read.low is None or read.low <= read.effect + 1e-3 * abs(read.effect) + 1e-9
            assert math.isfinite(read.e_value)


def test_a_record_of_another_trial_or_no_record_at_all_is_nothing():
    record = to_record(Trial.begin(SPEC, "d1", History(100, 1)))
    assert from_record(record, "d2") is None
    for other in (None, {}, {**record, "version": 1}, {**record, "more": 1}):
        assert from_record(other, "d1") is None


def test_an_operator_of_an_earlier_version_wrote_the_same_fields():
    shift = {
        "assumed", "open_s", "open_canary", "open_control", "levels", "canary", "control", "dispersion"
    }  # fmt: skip
    state = to_record(Trial.begin(SPEC, "d1", History(100, 1)))["state"]
    assert {name: set(value) for name, value in state.items() if isinstance(value, dict)} == {
        "ttft": shift,
        "overall": shift,
        "tpot": shift,
        "output": shift,
        "errors": {"tolerance", "history", "unspent", "tally", "won", "won_aided"},
        "violations": {"tolerance", "tally", "won", "at_equal_load"},
        "canary_empty": {"requests", "events"},
        "control_empty": {"requests", "events"},
        "warm_up": {"elapsed_s", "canary", "control", "is_over"},
    }
    assert state.keys() >= {"judged_s", "weight"}


def state_after_blocks(shift, errors=0):
    """Judge's state after 12 blocks in which the canary's log latencies are larger by `shift`. errors:
    of the canary in each block."""
    arms = {}
    for name, larger in (("control", 0.0), ("canary", shift)):
        moments = Moments.of([larger + 0.01 * (n % 5) for n in range(40)])
        arms[name] = replace(NO_REQUESTS, 
            requests=40, ttft=(moments, *EMPTY_BINS[1:]), tpot=(moments, *EMPTY_TPOT_BINS[1:]),
            output=moments, errors=errors if name == "canary" else 0,
        )  # fmt: skip
    state = JudgeState.begin(SPEC)
    for _ in range(12):
        _, state = judge(SPEC, state, Block(length_s=10.0, **arms))
    return state


def test_a_shift_is_told_with_bounds_on_both_sides_once_there_is_some_data():
    said = evidence(SPEC, JudgeState.begin(SPEC))[0]
    assert "low" not in said
    assert "high" not in said
    state = state_after_blocks(0.2)
    said = next(each for each in evidence(SPEC, state) if each["metric"] == "TTFT")
    estimate = state.ttft.estimate()
    radius = estimate.radius(SPEC.log_tolerance, SPEC.alpha)
    assert said["low"] == float(f"{math.expm1(estimate.difference - radius):.4g}")
    assert said["high"] == float(f"{math.expm1(estimate.difference + radius):.4g}")
    assert said["low"] < said["effect"] < said["high"]


def test_a_shift_that_is_off_every_scale_is_told_as_eight_thousand_times():
    said = {each["metric"]: each for each in evidence(SPEC, state_after_blocks(9.5))}
    for metric in ("TTFT", "TPOT", "Output length"):
        row = said[metric]
        assert (row["low"], row["effect"], row["high"]) == (8102.0, 8102.0, 8102.0)


def test_shares_of_errors_are_told_with_what_they_are_shares_of():
    [row] = [
        each
        for each in evidence(SPEC, state_after_blocks(0.0, errors=4))
        if each["metric"] == "Errors"
    ]
    reading = state_after_blocks(0.0, errors=4).errors.reading(SPEC.alpha)
    assert row == {
        "metric": "Errors", "effect": 0.1, "high": float(f"{reading.high:.4g}"),
        "canarySamples": 480, "controlSamples": 480, "eValue": 1e12, "verdict": "Beyond",
    }  # fmt: skip


def test_metrics_of_the_user_are_told_by_name():
    metric = MetricGateState(state="Failed", said="5 > 3")
    assert metric_gates({"queue": metric}) == (
        {"name": "queue", "kind": "Metric", "state": "Failed", "message": "5 > 3"},
    )
