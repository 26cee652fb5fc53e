"""Verdicts of the judge over sequences of blocks, with their reasons."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.evidence import Block, History
from penstock.core.canary.judge import evaluate_tests, judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.moments import Moments
from penstock.core.canary.verdict import Abort, Accept, Continue, Extend
from penstock.core.spec.canary import CanarySpec

SPEC = CanarySpec()
STAKES = {
    "TTFT": 0.50,
    "TTFT with queues": 0.0,
    "TPOT": 0.04,
    "Errors": 0.36,
    "Objective violations": 0.06,
    "Output length": 0.04,
}
STAKES_WITHOUT_STREAMS = STAKES | {"TTFT": 0.0, "TTFT with queues": 0.54, "TPOT": 0.0}


def run(blocks, spec=SPEC, state=None):
    """The last verdict, the state after it, and how many blocks it took."""
    state = state or JudgeState.begin(spec)
    verdict = None
    for count, block in enumerate(blocks, start=1):  # noqa: B007 - the last one is returned
        verdict, state = judge(spec, state, block)
        if isinstance(verdict, Accept | Abort):
            break
    return verdict, state, count


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ({"crash_loops": 1}, "crash loop"),
        ({"out_of_memory": 2}, "OOMKilled"),
        ({"nan_outputs": 1}, "NaN outputs"),
    ],
)
def test_a_fault_aborts_at_once(make, faults, told):
    verdict, _, count = run([make.block(make.arm(), make.arm(), **faults)])
    assert isinstance(verdict, Abort)
    assert (verdict.cause, count) == ("Gate", 1)
    assert told in verdict.reason


def test_a_fault_aborts_without_any_request(make):
    verdict, _, _ = run([make.block(NO_REQUESTS, NO_REQUESTS, crash_loops=1)])
    assert isinstance(verdict, Abort)


@pytest.mark.parametrize(
    ("canary_errors", "control_errors", "is_burst"),
    [(8, 0, True), (1, 0, False), (0, 0, False), (8, 90, False), (8, 60, False)],
)
def test_a_burst_of_errors_is_measured_against_the_control(
    make, canary_errors, control_errors, is_burst
):
    before = [make.block(make.arm(10), make.arm(90))] * 5
    burst = make.block(make.arm(10, errors=canary_errors), make.arm(90, errors=control_errors))
    verdict, _, _ = run([*before, burst])
    assert (isinstance(verdict, Abort) and verdict.cause == "Gate") == is_burst


def test_empty_answers_that_stable_does_not_give_abort(make):
    calm = make.block(make.arm(10), make.arm(90))
    verdict, _, _ = run([*[calm] * 5, make.block(make.arm(10, empty=6), make.arm(90))])
    assert isinstance(verdict, Abort)
    assert "empty" in verdict.reason


@pytest.mark.parametrize(("control_empty", "blocks"), [(0, 2), (1, None)])
def test_a_canary_that_says_nothing_is_found_at_any_rate(make, control_empty, blocks):
    """Two requests in ten seconds; and not where stable says nothing now and then itself."""
    silent = make.block(make.arm(2, empty=2), make.arm(4, empty=control_empty))
    verdict, _, count = run([silent] * 5)
    assert isinstance(verdict, Abort) == (blocks is not None)
    assert count == (blocks or 5)


@pytest.mark.parametrize(
    ("worse", "metric"),
    [
        ({"ttft": 0.3 * 1.5}, "TTFT"),
        ({"tpot": 0.03 * 1.2}, "TPOT"),
        ({"error_share": 0.05}, "Errors"),
    ],
)
def test_what_is_worse_is_found_and_named(make, worse, metric):
    verdict, _, _ = run(make.blocks(360, **worse))
    assert isinstance(verdict, Abort)
    assert verdict.cause == "Evidence"
    assert verdict.reason.startswith(metric)


def test_a_canary_like_stable_is_promoted_with_both_latencies_told(make):
    verdict, _, _ = run(make.blocks(360, seed=1))
    assert isinstance(verdict, Accept)
    assert verdict.cause == "Evidence"
    assert "TTFT" in verdict.reason
    assert "TPOT" in verdict.reason


def test_a_canary_that_is_slower_within_the_tolerance_is_promoted_later(make):
    same = run(make.blocks(360, seed=2))
    slower = run(make.blocks(360, seed=2, ttft=0.305))
    assert isinstance(slower[0], Accept)
    assert same[2] < slower[2]


def test_drift_of_output_length_aborts_but_not_within_the_tolerance(make):
    def drifted(factor):
        draw = iter(make.blocks(360, seed=3))
        for index, block in enumerate(draw):
            lengths = [5 + 0.9 * math.sin(7.0 * index + i) for i in range(10)]
            longer = [length + math.log(factor) for length in lengths]
            yield replace(
                block,
                canary=replace(block.canary, output=Moments.of(longer)),
                control=replace(block.control, output=Moments.of(lengths * 9)),
            )

    assert run(drifted(2.0))[0].reason.startswith("Output length")
    assert run(drifted(0.5))[0].reason.startswith("Output length")
    assert isinstance(run(drifted(1.05))[0], Accept)


def unstreamed(blocks):
    """The same requests without streams: only the times of whole answers are known."""
    empty = {"ttft": NO_REQUESTS.ttft, "tpot": NO_REQUESTS.tpot}
    for block in blocks:
        arms = (replace(arm, **empty) for arm in (block.canary, block.control))
        yield make_block(*arms)


def make_block(canary, control):
    return Block(length_s=10.0, canary=canary, control=control)


def test_a_canary_without_streams_is_judged_by_the_times_of_whole_answers(make):
    verdict, state, count = run(unstreamed(make.blocks(360, seed=1)))
    assert isinstance(verdict, Accept)
    assert (verdict.cause, state.ttft.is_empty, state.tpot.is_empty) == ("Evidence", True, True)
    assert verdict.reason.startswith("TTFT with queues of the canary is")
    assert count >= 30  # intervals of missed objectives: five minutes


@pytest.mark.parametrize("factor", [1.5, 10.0])
def test_a_slower_canary_without_streams_is_aborted(make, factor):
    verdict, state, _ = run(unstreamed(make.blocks(400, seed=1, ttft=0.3 * factor)))
    assert isinstance(verdict, Abort)
    assert (verdict.cause, state.streamed) == ("Evidence", ())
    assert verdict.reason.startswith("TTFT with queues of the canary is")
    assert state.judged_s < 1800


def test_streams_give_the_stake_back_to_their_own_tests(make):
    """A control that streams has TTFT and TPOT, so that its whole times abort nothing."""
    _, state, _ = run(unstreamed(make.blocks(5, seed=1)))
    _, state, _ = run(make.blocks(5, seed=2), state=state)
    assert {f.test.metric: f.stake for f in evaluate_tests(SPEC, state)} == STAKES


def test_tpot_is_not_needed_if_all_answers_have_one_token(make):
    def short(blocks):
        for block in blocks:
            arms = (replace(arm, tpot=NO_REQUESTS.tpot) for arm in (block.canary, block.control))
            yield make_block(*arms)

    verdict, _, _ = run(short(make.blocks(360, seed=1)))
    assert isinstance(verdict, Accept)
    assert "TPOT" not in verdict.reason


@pytest.mark.parametrize(("on_timeout", "kind"), [("Rollback", Abort), ("Promote", Accept)])
def test_an_undecided_canary_ends_as_the_user_said(make, on_timeout, kind):
    spec = CanarySpec(max_duration_s=60.0, on_timeout=on_timeout)
    verdict, _, count = run(make.blocks(20, canary_requests=2), spec)
    assert isinstance(verdict, kind)
    assert (verdict.cause, count) == ("Timeout", 6)
    assert "TTFT" in verdict.reason


SILENT = st.sampled_from(
    [
        Block(length_s=10.0, canary=NO_REQUESTS, control=NO_REQUESTS),
        Block(length_s=30.0, canary=NO_REQUESTS, control=replace(NO_REQUESTS, requests=50)),
        Block(length_s=10.0, canary=replace(NO_REQUESTS, requests=3), control=NO_REQUESTS),
    ]
)


@given(silences=st.lists(SILENT, max_size=400), at=st.integers(0, 19))
@settings(max_examples=20, deadline=None)
def test_no_data_extends_and_changes_nothing(make, silences, at):
    spec = CanarySpec(max_duration_s=400.0)
    seen = make.blocks(20, seed=4, canary_requests=3)
    whole = run(seen, spec)[1]
    state = run(seen[:at], spec)[1] if at else JudgeState.begin(spec)
    for silence in silences:
        verdict, after = judge(spec, state, silence)
        assert isinstance(verdict, Extend)
        assert after is state
    assert run(seen[at:], spec, state)[1] == whole


def test_latency_is_not_judged_before_the_prefix_cache_is_warm(make):
    cold = make.blocks(20, ttft=3.0, hit=0.0)
    _, state, count = run(cold)
    assert count == 20
    assert state.ttft.dispersion.n == 0

    verdict, _, _ = run(make.blocks(340, seed=5), state=state)
    assert isinstance(verdict, Accept)


def test_a_cache_that_never_warms_is_judged_after_five_minutes(make):
    verdict, _, count = run(make.blocks(360, ttft=0.6, hit=0.0))
    assert isinstance(verdict, Abort)
    assert 30 < count < 60


def test_the_weight_grows_with_evidence_and_not_beyond_its_bounds(make):
    spec = CanarySpec(min_weight=0.02, max_weight=0.4)
    state = JudgeState.begin(spec)
    weights = []
    for block in make.blocks(360, seed=6):
        verdict, state = judge(spec, state, block)
        if isinstance(verdict, Accept):
            break
        assert isinstance(verdict, Continue)
        weights.append(verdict.weight)
    assert weights == sorted(weights)
    assert weights[0] == spec.min_weight
    assert weights[-1] > 0.1
    assert max(weights) <= spec.max_weight
    assert all(b <= 2 * a for a, b in itertools.pairwise(weights))


def test_the_weight_halts_under_suspicion(make):
    state = JudgeState.begin(SPEC)
    for block in make.blocks(100, seed=7, ttft=0.36):
        before = state.weight
        verdict, state = judge(SPEC, state, block)
        if isinstance(verdict, Abort):
            break
        evidence = sum(finding.wealth for finding in evaluate_tests(SPEC, state))
        assert evidence < 10 or state.weight == before


def test_all_stakes_together_are_one(make):
    before = JudgeState.begin(SPEC)
    _, streamed, _ = run(make.blocks(5))
    for state, stakes in ((before, STAKES_WITHOUT_STREAMS), (streamed, STAKES)):
        assert {f.test.metric: f.stake for f in evaluate_tests(SPEC, state)} == stakes
        assert sum(stakes.values()) == pytest.approx(1)


def test_an_outage_of_both_sides_is_not_the_canarys(make):
    """A quiet history must not turn an outage of everything into evidence."""
    state = JudgeState.begin(SPEC, History(requests=16_000, errors=1))
    blocks = [make.block(make.arm(10, errors=1), make.arm(90, errors=9)) for _ in range(60)]
    verdict, _, _ = run(blocks, state=state)
    assert isinstance(verdict, Continue)


latencies = st.floats(1e-3, 1e3)
counts = st.integers(0, 12)


@st.composite
def any_block(draw, make):
    sides = []
    for _ in range(2):
        requests = draw(counts)
        errors = draw(st.integers(0, requests))
        seconds = draw(st.lists(latencies, min_size=requests - errors, max_size=requests - errors))
        sides.append(
            make.arm(
                requests,
                ttft=seconds,
                tpot=seconds,
                errors=errors,
                violations=draw(st.integers(errors, requests)),
                tokens=draw(st.integers(1, 10_000)),
                ahead=draw(st.integers(0, 20)),
            )
        )
    return make.block(*sides)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_comes_is_judged(make, data):
    """E-values are never negative nor lost, time and weight never run back."""
    state = JudgeState.begin(SPEC)
    for block in data.draw(st.lists(any_block(make), max_size=60)):
        verdict, after = judge(SPEC, state, block)
        assert verdict.reason
        for finding in evaluate_tests(SPEC, after):
            assert finding.e_value >= 0
            assert math.isfinite(finding.e_value)
        assert after.judged_s >= state.judged_s
        assert state.weight <= after.weight <= SPEC.max_weight
        state = after
