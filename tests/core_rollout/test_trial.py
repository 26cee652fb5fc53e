"""What the judge remembers of a canary: kept bit for bit, and said in the status."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.status import Evidence
from penstock.core.canary.evidence import EMPTY_BINS, EMPTY_TPOT_BINS, Arm, Block, History
from penstock.core.canary.judge import begin, judge
from penstock.core.canary.moments import Moments
from penstock.core.canary.spec import CanarySpec
from penstock.core.rollout.trial import VERSION, Trial, evidence, from_record, to_record

SPEC = CanarySpec()


@st.composite
def arms(draw):
    requests = draw(st.integers(0, 30))
    errors = draw(st.integers(0, requests // 10))
    logs = draw(st.lists(st.floats(-3, 3), min_size=requests, max_size=requests))
    ttft = (Moments.of(logs), *EMPTY_BINS[1:])
    tpot = (Moments.of(logs), *EMPTY_TPOT_BINS[1:])
    return Arm(requests=requests, errors=errors, ttft=ttft, tpot=tpot, output=Moments.of(logs))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(arms(), arms()), max_size=15))
def test_a_trial_goes_on_from_its_record_as_if_nothing_had_been(pairs):
    kept = state = begin(SPEC)
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
