"""Judges a canary: returns a verdict for each block of evidence.

    fault gates -> tests (TTFT, TPOT, errors, objective violations, output length) -> combined e-value
      -> abort at 1 / alpha -> accept when every regression is shown to be below its tolerance
      -> timeout -> the next weight

The combined evidence is an e-value: the wealth of fair bets against "the canary is no worse", with a mean
of at most 1 while that is true. The initial stake is split over the tests. The total reaches 1 / alpha with
probability at most alpha, at any time (Ville's inequality), or twice that if the control's first streamed
answer comes after others, as the stakes are then split anew. A test whose regression is shown to be within
tolerance does not count, even if a regression is certain.
"""

from dataclasses import dataclass, replace

from penstock.core.canary import gates
from penstock.core.canary.canary_test import CanaryTest
from penstock.core.canary.evidence import Block
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.verdict import Abort, Accept, Continue, Extend, Verdict
from penstock.core.canary.weight import next_weight
from penstock.core.spec.canary import CanarySpec


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one test.

    stake: initial wealth. is_within: whether the regression is shown to be below its tolerance.
    """

    test: CanaryTest
    stake: float
    e_value: float
    is_within: bool

    @property
    def wealth(self) -> float:
        """Wealth of the test in the combined e-value."""
        return 0.0 if self.is_within else self.stake * self.e_value


def judge(spec: CanarySpec, state: JudgeState, block: Block) -> tuple[Verdict, JudgeState]:
    """The verdict after a block, and the next state. Blocks must be in order of time."""
    if reason := fault(state, block):
        return Abort(reason, "Gate"), state
    if not (block.canary.requests and block.control.requests):
        return _extended(state, block), state
    state = state.add(block)
    findings = evaluate_tests(spec, state)
    evidence = sum(finding.wealth for finding in findings)
    worst = max(findings, key=lambda finding: finding.wealth)
    reason = f"{worst.test.describe(spec)}; {_odds(evidence)}"
    if evidence >= 1 / spec.alpha:
        return Abort(reason), state
    if not _undecided(findings):
        return Accept(f"{_summary(spec, state)}; all within tolerance"), state
    if state.judged_s >= spec.max_duration_s:
        return _timed_out(spec, state, findings), state
    weight = next_weight(spec, state.weight, _progress(spec, state), evidence)
    return Continue(reason, weight), replace(state, weight=weight)


def fault(state: JudgeState, block: Block) -> str | None:
    """Why the canary must be aborted at once, in words; the block may be unfinished."""
    known = state.errors.tally.control
    return gates.fault(block, known, state.canary_empty, state.control_empty)


def evaluate_tests(spec: CanarySpec, state: JudgeState) -> tuple[Finding, ...]:
    """The current results of all tests."""
    stakes = state.stakes
    return tuple(
        Finding(test, stakes[name], *test.evaluate(spec)) for name, test in state.tests.items()
    )


def _undecided(findings: tuple[Finding, ...]) -> list[CanaryTest]:
    """Tests that acceptance still waits for."""
    return [f.test for f in findings if not f.is_within and f.test.is_awaited]


def _progress(spec: CanarySpec, state: JudgeState) -> float:
    """Fraction of the required information on latencies that is there."""
    return min(test.progress(spec) for test in state.streamed or [state.overall])


def _extended(state: JudgeState, block: Block) -> Extend:
    silent = "control" if block.canary.requests else "canary"
    return Extend(
        f"no request ended on the {silent} for {block.length_s:g} s; that time is not counted",
        state.weight,
    )


def _timed_out(
    spec: CanarySpec, state: JudgeState, findings: tuple[Finding, ...]
) -> Accept | Abort:
    still_open = [
        test.metric for test in _undecided(findings) if not test.passes_final_analysis(spec)
    ]
    if not still_open:
        return Accept(f"{_summary(spec, state)}; all within tolerance in the final analysis")
    reason = (
        f"undecided after {state.judged_s / 60:.0f} minutes with requests, onTimeout is "
        f"{spec.on_timeout}: not shown to be within tolerance: {', '.join(still_open)}"
    )
    return Accept(reason, "Timeout") if spec.on_timeout == "Promote" else Abort(reason, "Timeout")


def _summary(spec: CanarySpec, state: JudgeState) -> str:
    return "; ".join(test.describe(spec) for test in state.streamed or [state.overall])


def _odds(evidence: float) -> str:
    odds = f"{evidence:,.1f}" if evidence < 1e6 else "more than a million"
    return f"the evidence against it is {odds} to 1"
