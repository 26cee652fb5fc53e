"""A test that becomes a field of the judge's state is evaluated, explained, shown and stored."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.core.canary.canary_test import ShiftTest
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.verdict import Abort, Accept
from penstock.core.formats.serialization import deserialize, serialize
from penstock.core.rollout.trial import evidence
from penstock.core.spec.canary import CanarySpec

SPEC = CanarySpec()


@dataclass(frozen=True, slots=True)
class AnswerTokens(ShiftTest):
    metric: ClassVar = "Answer tokens"
    stake: ClassVar = 0.9
    waits_for_warm_up: ClassVar = False

    @staticmethod
    def values(arm):
        return (arm.output,)


@dataclass(frozen=True, slots=True)
class State(JudgeState):
    answer_tokens: AnswerTokens


def run(blocks, spec=SPEC):
    state = State.begin(spec)
    for block in blocks:
        verdict, state = judge(spec, state, block)
        if isinstance(verdict, Abort | Accept):
            break
    return verdict, state


def longer_answers(blocks):
    for index, block in enumerate(blocks):
        logs = [5 + 0.1 * ((7 * index + n) % 5) for n in range(10)]
        yield replace(
            block,
            canary=replace(block.canary, output=Moments.of([log + 0.5 for log in logs])),
            control=replace(block.control, output=Moments.of(logs * 9)),
        )


def test_it_aborts_a_canary_and_says_why(make):
    verdict, state = run(longer_answers(make.blocks(60)))
    assert isinstance(verdict, Abort)
    assert verdict.reason.startswith("Answer tokens of the canary is +64.9 % against its control")
    assert state.answer_tokens.estimate().difference > 0.4


def test_it_is_shown_after_the_others(make):
    _, state = run(longer_answers(make.blocks(60)))
    shown = evidence(SPEC, state)
    assert [each["metric"] for each in shown] == [
        "TTFT", "TTFT with queues", "TPOT", "Errors", "Objective violations", "Output length",
        "Answer tokens",
    ]  # fmt: skip
    assert (shown[-1]["effect"], shown[-1]["verdict"]) == (0.6487, "Beyond")


def test_it_is_stored(make):
    _, state = run(longer_answers(make.blocks(12)))
    record = json.loads(json.dumps(serialize(state)))
    assert record["answer_tokens"] == json.loads(json.dumps(serialize(state.answer_tokens)))
    assert deserialize(State, record) == state


def test_acceptance_waits_for_it(make):
    def without_tokens(blocks):
        for block in blocks:
            arms = (replace(arm, output=NOTHING) for arm in (block.canary, block.control))
            yield make.block(*arms)

    verdict, _ = run(without_tokens(make.blocks(180)), CanarySpec(max_duration_s=1800.0))
    assert isinstance(verdict, Abort)
    assert verdict.reason == (
        "undecided after 30 minutes with requests, onTimeout is Rollback: not shown to be within "
        "tolerance: Answer tokens"
    )
