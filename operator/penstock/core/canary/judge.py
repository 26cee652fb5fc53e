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

from penstock.core.canary import gates, sentence
from penstock.core.canary.counts import NONE, Counts
from penstock.core.canary.errors import Errors
from penstock.core.canary.estimate import Estimate
from penstock.core.canary.evidence import NO_HISTORY, Block, History
from penstock.core.canary.proportions import ProportionEstimate
from penstock.core.canary.shift import CONCURRENCIES, QUEUE_LENGTHS, UNCORRELATED, Shift
from penstock.core.canary.stakes import STAKES, STAKES_WITHOUT_STREAMS, Metric
from penstock.core.canary.verdict import Abort, Accept, Continue, Extend, Verdict
from penstock.core.canary.violations import Violations
from penstock.core.canary.warmup import WarmUp
from penstock.core.canary.weight import next_weight
from penstock.core.spec.canary import CanarySpec

# Tolerance of TTFT with queues, in multiples of the tolerance. Queues move it by more than the tolerance,
# and the comparison at equal load is much more precise.
QUEUE_TOLERANCES = 3.0


@dataclass(frozen=True, slots=True)
class JudgeState:
    """State of all tests. Field names are stored.

    ttft, tpot: at equal load. overall: TTFT with queueing in the gateway and the engine. judged_s: seconds
    with requests on both sides; only these count towards maxDuration. weight: earned share of traffic.
    """

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

    @property
    def has_streams(self) -> bool:
        """Whether an answer of the control was streamed."""
        return not (self.ttft.is_empty and self.tpot.is_empty)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one test.

    stake: initial wealth. is_within: whether the regression is shown to be below its tolerance.
    """

    metric: Metric
    stake: float
    e_value: float
    is_within: bool

    @property
    def wealth(self) -> float:
        """Wealth of the test in the combined e-value."""
        return 0.0 if self.is_within else self.stake * self.e_value


def begin(spec: CanarySpec, history: History = NO_HISTORY) -> JudgeState:
    """The state before the first block. history: baseline error counts of stable."""
    return JudgeState(
        ttft=Shift(),
        overall=Shift(assumed=0.0),  # queues dominate the variance, so there is no prior for it
        tpot=Shift(),
        output=Shift(),
        errors=Errors.with_history(spec.error_tolerance, history),
        violations=Violations(spec.violation_tolerance),
        canary_empty=NONE,
        control_empty=NONE,
        warm_up=WarmUp(),
        judged_s=0.0,
        weight=spec.min_weight,
    )


def judge(spec: CanarySpec, state: JudgeState, block: Block) -> tuple[Verdict, JudgeState]:
    """The verdict after a block, and the next state. Blocks must be in order of time."""
    if reason := fault(state, block):
        return Abort(reason, "Gate"), state
    if not (block.canary.requests and block.control.requests):
        return _extended(state, block), state
    state = _with_block(state, block)
    findings = evaluate_tests(spec, state)
    evidence = sum(finding.wealth for finding in findings)
    if evidence >= 1 / spec.alpha:
        worst = max(findings, key=lambda finding: finding.wealth)
        return Abort(f"{describe_test(spec, state, worst.metric)}; {_odds(evidence)}"), state
    if not _undecided(state, findings):
        return Accept(f"{_summary(spec, state)}; all within tolerance"), state
    if state.judged_s >= spec.max_duration_s:
        return _timed_out(spec, state, findings), state
    weight = next_weight(spec, state.weight, _progress(spec, state), evidence)
    worst = max(findings, key=lambda finding: finding.wealth)
    reason = f"{describe_test(spec, state, worst.metric)}; {_odds(evidence)}"
    return Continue(reason, weight), replace(state, weight=weight)


def fault(state: JudgeState, block: Block) -> str | None:
    """Why the canary must be aborted at once, in words; the block may be unfinished."""
    known = state.errors.tally.control
    return gates.fault(block, known, state.canary_empty, state.control_empty)


def evaluate_tests(spec: CanarySpec, state: JudgeState) -> tuple[Finding, ...]:
    """The current results of all tests."""
    scale, alpha = spec.log_tolerance, spec.alpha
    ttft, tpot, output = state.ttft.estimate(), state.tpot.estimate(), state.output.estimate()
    overall, coarse = state.overall.estimate(), QUEUE_TOLERANCES * scale
    stakes = STAKES if state.has_streams else STAKES_WITHOUT_STREAMS
    results: dict[Metric, tuple[float, bool]] = {
        "TTFT": (ttft.e_value(scale), _is_within(ttft, scale, alpha)),
        # A null hypothesis of one tolerance: smaller regressions are tested at equal load.
        "TTFT with queues": (overall.e_value(coarse, scale), _is_within(overall, coarse, alpha)),
        "TPOT": (tpot.e_value(scale), _is_within(tpot, scale, alpha)),
        "Errors": (state.errors.e_value(), state.errors.is_within(alpha)),
        "Objective violations": (state.violations.e_value(), state.violations.is_within(alpha)),
        # A new model may answer at another length: only a drift beyond the tolerance, up or down, counts
        # against it, and acceptance does not wait for this test.
        "Output length": (output.two_sided_e_value(scale, scale), False),
    }
    return tuple(Finding(metric, stakes[metric], *result) for metric, result in results.items())


def _undecided(state: JudgeState, findings: tuple[Finding, ...]) -> list[Metric]:
    """Tests that acceptance still waits for.

    Only streams have a TTFT, and only those of two tokens or more a TPOT. If the control never had such an
    answer, its test is not waited for; the test of TTFT with queues compares the times of whole answers.
    """
    unused = {"Output length"}
    unused |= {"TTFT"} if state.ttft.is_empty else set()
    unused |= {"TPOT"} if state.tpot.is_empty else set()
    return [f.metric for f in findings if not f.is_within and f.metric not in unused]


def describe_test(spec: CanarySpec, state: JudgeState, metric: Metric) -> str:
    """A sentence on the current result of one test."""
    seen = statistics_of(spec, state, metric)
    if isinstance(seen, ProportionEstimate):
        return sentence.describe_proportions(metric, seen)
    return sentence.describe_shift(metric, seen, spec.log_tolerance, spec.alpha)


def statistics_of(
    spec: CanarySpec, state: JudgeState, metric: Metric
) -> Estimate | ProportionEstimate:
    """The estimate behind one test."""
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


def _with_block(state: JudgeState, block: Block) -> JudgeState:
    canary, control, length_s = block.canary, block.control, block.length_s
    ttft, overall, tpot = state.ttft, state.overall, state.tpot
    if state.warm_up.is_over:
        ttft = ttft.add(length_s, canary.ttft, control.ttft, QUEUE_LENGTHS)
        overall = overall.add(length_s, (canary.overall,), (control.overall,), UNCORRELATED)
        tpot = tpot.add(length_s, canary.tpot, control.tpot, CONCURRENCIES)
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
        output=state.output.add(length_s, (canary.output,), (control.output,), UNCORRELATED),
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


def _is_within_at_timeout(spec: CanarySpec, state: JudgeState, metric: Metric) -> bool:
    """Whether one test is within tolerance in the final analysis at maxDuration.

    There is a single analysis at a planned time, so bounds of fixed-sample tests suffice.
    """
    match metric:
        case "Errors":
            return state.errors.is_within_at_timeout()
        case "Objective violations":
            return state.violations.is_within_at_timeout()
        case "TTFT with queues":
            return state.overall.timeout_bound() < QUEUE_TOLERANCES * spec.log_tolerance
        case "TTFT":
            return state.ttft.timeout_bound() < spec.log_tolerance
        case "TPOT":
            return state.tpot.timeout_bound() < spec.log_tolerance
        case "Output length":
            return True


def _progress(spec: CanarySpec, state: JudgeState) -> float:
    """Fraction of the required information on latencies that is there."""
    used = [shift for shift in (state.ttft, state.tpot) if not shift.is_empty]
    if not used:
        return _information_fraction(
            state.overall.estimate(), QUEUE_TOLERANCES * spec.log_tolerance, spec.alpha
        )
    return min(
        _information_fraction(shift.estimate(), spec.log_tolerance, spec.alpha) for shift in used
    )


def _information_fraction(estimate: Estimate, scale: float, alpha: float) -> float:
    """Fraction of the information that is needed to show a shift below `scale`.

    A bound shrinks with the square root of the information, so its inverse square measures information.
    """
    bound = estimate.difference + estimate.radius(scale, alpha)
    return 1.0 if bound <= scale else (scale / bound) ** 2


def _extended(state: JudgeState, block: Block) -> Extend:
    silent = "control" if block.canary.requests else "canary"
    return Extend(
        f"no request ended on the {silent} for {block.length_s:g} s; that time is not counted",
        state.weight,
    )


def _timed_out(
    spec: CanarySpec, state: JudgeState, findings: tuple[Finding, ...]
) -> Accept | Abort:
    undecided = _undecided(state, findings)
    still_open = [m for m in undecided if not _is_within_at_timeout(spec, state, m)]
    if not still_open:
        return Accept(f"{_summary(spec, state)}; all within tolerance in the final analysis")
    reason = (
        f"undecided after {state.judged_s / 60:.0f} minutes with requests, onTimeout is "
        f"{spec.on_timeout}: not shown to be within tolerance: {', '.join(still_open)}"
    )
    return Accept(reason, "Timeout") if spec.on_timeout == "Promote" else Abort(reason, "Timeout")


def _summary(spec: CanarySpec, state: JudgeState) -> str:
    metrics: list[Metric] = [] if state.ttft.is_empty else ["TTFT"]
    metrics += [] if state.tpot.is_empty else ["TPOT"]
    return "; ".join(describe_test(spec, state, each) for each in metrics or ["TTFT with queues"])


def _odds(evidence: float) -> str:
    odds = f"{evidence:,.1f}" if evidence < 1e6 else "more than a million"
    return f"the evidence against it is {odds} to 1"
