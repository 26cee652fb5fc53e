"""One block in, one verdict out: the canary goes on, has earned its place, or goes.

    gates -> tests (TTFT, TPOT, errors, objective violations, output length) -> evidence, combined
      -> abort at 1 / alpha -> accept when every regression is shown to be below its tolerance
      -> timeout -> the next weight

Evidence is an e-value: a bet at fair odds against "the canary is no worse", whose mean stays at 1
while that is true. The stake is split over the tests, and what all of them hold together reaches
1 / alpha with a chance of at most alpha, whenever one looks. A test whose regression is shown to be
within tolerance holds nothing against the canary, however sure it is that there is one.
"""

from dataclasses import dataclass, replace
from typing import Literal

from penstock.core.canary import gates, sentence
from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.errors import Errors
from penstock.core.canary.estimate import Estimate
from penstock.core.canary.evidence import NO_HISTORY, Block, History
from penstock.core.canary.shift import AT_ONCE, IN_LINE, NO_LINES, Shift
from penstock.core.canary.tally import TallyReading
from penstock.core.canary.verdict import Abort, Accept, Continue, Extend, Verdict
from penstock.core.canary.violations import Violations
from penstock.core.canary.warmup import WarmUp
from penstock.core.canary.weight import next_weight
from penstock.core.spec.canary import CanarySpec

Metric = Literal[
    "TTFT", "TTFT with queues", "TPOT", "Errors", "Objective violations", "Output length"
]

# The split of the stake. TTFT varies most and errors are rarest, so they get most; TPOT varies a
# third of TTFT and wins back a small stake in a minute.
STAKES: dict[Metric, float] = {
    "TTFT": 0.50,
    "TTFT with queues": 0.0,
    "TPOT": 0.04,
    "Errors": 0.36,
    "Objective violations": 0.06,
    "Output length": 0.04,
}

# TTFT as clients see it may be so many tolerances worse: queues move it by more than that, and what
# the revision does at equal load is known much better.
QUEUE_TOLERANCES = 3.0


@dataclass(frozen=True, slots=True)
class JudgeState:
    """ttft, tpot: at equal load. overall: TTFT with all that a request waited. judged_s: time with
    requests on both sides; only that counts towards the timeout."""

    ttft: Shift
    overall: Shift
    tpot: Shift
    output: Shift
    errors: Errors
    violations: Violations
    canary_empty: Counts
    control_empty: Counts
    warm_up: WarmUp
    judged_s: float
    weight: float


@dataclass(frozen=True, slots=True)
class Finding:
    """What one test holds. is_within: the regression is shown to be below its tolerance."""

    metric: Metric
    e_value: float
    is_within: bool

    @property
    def stake(self) -> float:
        return 0.0 if self.is_within else STAKES[self.metric] * self.e_value


def begin(spec: CanarySpec, history: History = NO_HISTORY) -> JudgeState:
    return JudgeState(
        ttft=Shift(),
        overall=Shift(assumed=0.0),  # with queues in it, only what shows is known
        tpot=Shift(),
        output=Shift(),
        errors=Errors.beside(spec.error_tolerance, history),
        violations=Violations(spec.violation_tolerance),
        canary_empty=NONE,
        control_empty=NONE,
        warm_up=WarmUp(),
        judged_s=0.0,
        weight=spec.min_weight,
    )


def judge(spec: CanarySpec, state: JudgeState, block: Block) -> tuple[Verdict, JudgeState]:
    """After each block, in order of time. Does not mutate `state`."""
    if reason := fault(state, block):
        return Abort(reason, "Gate"), state
    if not (block.canary.requests and block.control.requests):
        return _extended(state, block), state
    state = _observed(state, block)
    findings = find(spec, state)
    evidence = sum(finding.stake for finding in findings)
    if evidence >= 1 / spec.alpha:
        worst = max(findings, key=lambda finding: finding.stake)
        return Abort(f"{describe(spec, state, worst.metric)}; {_odds(evidence)}"), state
    if not _still_open(findings):
        return Accept(f"{_all_told(spec, state)}; all within tolerance"), state
    if state.judged_s >= spec.max_duration_s:
        return _timed_out(spec, state, findings), state
    progress = min(_progress(spec, state.ttft.estimate()), _progress(spec, state.tpot.estimate()))
    weight = next_weight(spec, state.weight, progress, evidence)
    worst = max(findings, key=lambda finding: finding.stake)
    reason = f"{describe(spec, state, worst.metric)}; {_odds(evidence)}"
    return Continue(reason, weight), replace(state, weight=weight)


def fault(state: JudgeState, block: Block) -> str | None:
    """Why the canary has to go at once; of a block that has not ended, too."""
    known = state.errors.tally.control
    return gates.fault(block, known, state.canary_empty, state.control_empty)


def find(spec: CanarySpec, state: JudgeState) -> tuple[Finding, ...]:
    """What each test holds now."""
    scale, alpha = spec.log_tolerance, spec.alpha
    ttft, tpot, output = state.ttft.estimate(), state.tpot.estimate(), state.output.estimate()
    overall, coarse = state.overall.estimate(), QUEUE_TOLERANCES * scale
    return (
        Finding("TTFT", ttft.e_value(scale), _is_within(ttft, scale, alpha)),
        # Only what is more than one tolerance worse speaks against it: less is judged at equal load.
        Finding(
            "TTFT with queues", overall.e_value(coarse, scale), _is_within(overall, coarse, alpha)
        ),
        Finding("TPOT", tpot.e_value(scale), _is_within(tpot, scale, alpha)),
        Finding("Errors", state.errors.e_value(), state.errors.is_within(alpha)),
        Finding(
            "Objective violations", state.violations.e_value(), state.violations.is_within(alpha)
        ),
        # A new model may well answer at another length: only a drift beyond the tolerance, up or
        # down, speaks against it, and nobody waits for proof that there is none.
        Finding("Output length", output.two_sided_e_value(scale, scale), False),
    )


def _still_open(findings: tuple[Finding, ...]) -> list[Metric]:
    """What acceptance waits for."""
    return [f.metric for f in findings if not f.is_within and f.metric != "Output length"]


def describe(spec: CanarySpec, state: JudgeState, metric: Metric) -> str:
    """The sentence of one test."""
    seen = seen_of(spec, state, metric)
    if isinstance(seen, TallyReading):
        return sentence.of_tally(metric, seen)
    return sentence.of_shift(metric, seen, spec.log_tolerance, spec.alpha)


def seen_of(spec: CanarySpec, state: JudgeState, metric: Metric) -> Estimate | TallyReading:
    """What one test goes by."""
    match metric:
        case "Errors":
            return state.errors.reading(spec.alpha)
        case "Objective violations":
            return state.violations.reading(spec.alpha)
        case "TTFT":
            return state.ttft.estimate()
        case "TTFT with queues":
            return state.overall.estimate()
        case "TPOT":
            return state.tpot.estimate()
        case "Output length":
            return state.output.estimate()


def _observed(state: JudgeState, block: Block) -> JudgeState:
    canary, control, length_s = block.canary, block.control, block.length_s
    ttft, overall, tpot = state.ttft, state.overall, state.tpot
    if state.warm_up.is_over:
        ttft = ttft.add(length_s, canary.ttft, control.ttft, IN_LINE)
        overall = overall.add(length_s, (canary.overall,), (control.overall,), NO_LINES)
        tpot = tpot.add(length_s, canary.tpot, control.tpot, AT_ONCE)
    violations = state.violations
    if state.warm_up.is_over:
        violations = violations.add(
            length_s,
            Counts(canary.requests, canary.violations),
            Counts(control.requests, control.violations),
            canary.missed,
            control.missed,
        )
    return replace(
        state,
        ttft=ttft,
        overall=overall,
        tpot=tpot,
        output=state.output.add(length_s, (canary.output,), (control.output,), NO_LINES),
        errors=state.errors.add(
            length_s,
            Counts(canary.requests, canary.errors),
            Counts(control.requests, control.errors),
        ),
        violations=violations,
        canary_empty=state.canary_empty.add(Counts(canary.requests, canary.empty_outputs)),
        control_empty=state.control_empty.add(Counts(control.requests, control.empty_outputs)),
        warm_up=state.warm_up.add(block),
        judged_s=state.judged_s + length_s,
    )


def _is_within(estimate: Estimate, scale: float, alpha: float) -> bool:
    return estimate.difference + estimate.radius(scale, alpha) < scale


def _is_within_at_last(spec: CanarySpec, state: JudgeState, metric: Metric) -> bool:
    """That look was planned before, and there is no other: what it shows need not hold at all times."""
    match metric:
        case "Errors":
            return state.errors.is_within_at_last()
        case "Objective violations":
            return state.violations.is_within_at_last()
        case "TTFT with queues":
            return state.overall.last_bound() < QUEUE_TOLERANCES * spec.log_tolerance
        case "TTFT":
            return state.ttft.last_bound() < spec.log_tolerance
        case "TPOT":
            return state.tpot.last_bound() < spec.log_tolerance
        case "Output length":
            return True


def _progress(spec: CanarySpec, estimate: Estimate) -> float:
    """A bound shrinks with the root of the information, so its inverse square measures that."""
    bound = estimate.difference + estimate.radius(spec.log_tolerance, spec.alpha)
    return 1.0 if bound <= spec.log_tolerance else (spec.log_tolerance / bound) ** 2


def _extended(state: JudgeState, block: Block) -> Extend:
    silent = "control" if block.canary.requests else "canary"
    return Extend(
        f"no request ended on the {silent} for {block.length_s:g} s; that time is not counted",
        state.weight,
    )


def _timed_out(
    spec: CanarySpec, state: JudgeState, findings: tuple[Finding, ...]
) -> Accept | Abort:
    still_open = [m for m in _still_open(findings) if not _is_within_at_last(spec, state, m)]
    if not still_open:
        return Accept(f"{_all_told(spec, state)}; all within tolerance at the last look")
    reason = (
        f"undecided after {state.judged_s / 60:.0f} minutes with requests, onTimeout is "
        f"{spec.on_timeout}: not shown to be within tolerance: {', '.join(still_open)}"
    )
    return Accept(reason, "Timeout") if spec.on_timeout == "Promote" else Abort(reason, "Timeout")


def _all_told(spec: CanarySpec, state: JudgeState) -> str:
    return f"{describe(spec, state, 'TTFT')}; {describe(spec, state, 'TPOT')}"


def _odds(evidence: float) -> str:
    odds = f"{evidence:,.1f}" if evidence < 1e6 else "more than a million"
    return f"the evidence against it is {odds} to 1"
