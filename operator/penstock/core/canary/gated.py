"""The judge's verdict, and what the user's own metrics say to it."""

from collections.abc import Mapping

from penstock.core.canary.judge import JudgeState
from penstock.core.canary.metric_gate import Measured
from penstock.core.canary.verdict import Abort, Accept, Continue, Verdict
from penstock.core.spec.canary import CanarySpec


def gated(
    spec: CanarySpec, state: JudgeState, verdict: Verdict, metrics: Mapping[str, Measured]
) -> Verdict:
    """A metric that failed too often aborts; a promotion by evidence waits until all of them pass.

    metrics: by name. When the time is up meanwhile, spec.on_timeout speaks.
    """
    if isinstance(verdict, Abort):
        return verdict
    for name, each in metrics.items():
        if each.state == "Failed":
            return Abort(f"metric {name}: {each.said}", "Gate")
    waiting = [f"metric {name}: {each.said}" for name, each in metrics.items() if each.is_open]
    if not waiting or not isinstance(verdict, Accept) or verdict.cause == "Timeout":
        return verdict
    reason = f"{verdict.reason}; it waits for {'; '.join(waiting)}"
    if state.judged_s < spec.max_duration_s:
        return Continue(reason, state.weight)
    return Accept(reason, "Timeout") if spec.on_timeout == "Promote" else Abort(reason, "Timeout")
