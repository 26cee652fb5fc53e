"""Combines the judge's verdict with the user's metric gates."""

from collections.abc import Mapping

from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.metric_gate import MetricGateState
from penstock.core.canary.verdict import Abort, Accept, Continue, Verdict
from penstock.core.spec.canary import CanarySpec


def apply_metric_gates(
    spec: CanarySpec, state: JudgeState, verdict: Verdict, metrics: Mapping[str, MetricGateState]
) -> Verdict:
    """The verdict with metric gates applied.

    A failed gate aborts. A promotion by evidence waits until all gates pass, at most until the canary's
    maxDuration; then spec.on_timeout decides. metrics: gate states by name.
    """
    if isinstance(verdict, Abort):
        return verdict
    for name, each in metrics.items():
        if each.state == "Failed":
            return Abort(f"metric {name}: {each.said}", "Gate")
    waiting = [f"metric {name}: {each.said}" for name, each in metrics.items() if each.is_open]
    if not waiting or not isinstance(verdict, Accept) or verdict.cause == "Timeout":
        return verdict
    reason = f"{verdict.reason}; promotion waits for {'; '.join(waiting)}"
    if state.judged_s < spec.max_duration_s:
        return Continue(reason, state.weight)
    return Accept(reason, "Timeout") if spec.on_timeout == "Promote" else Abort(reason, "Timeout")
