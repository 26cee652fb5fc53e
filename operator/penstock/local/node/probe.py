"""Probe settings, and the verdict after consecutive results. No I/O."""

from dataclasses import dataclass, replace
from typing import Any, Literal

Verdict = Literal["unknown", "passing", "failing"]


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """A probe's settings from the pod, with Kubernetes' defaults."""

    action: dict[str, Any]  # httpGet, tcpSocket or exec
    initial_delay_s: float
    period_s: float
    timeout_s: float
    success_threshold: int
    failure_threshold: int
    grace_s: float | None = None  # from a failure to SIGKILL; None: the pod's grace period

    @classmethod
    def of(cls, probe: dict[str, Any] | None) -> "ProbeSpec | None":
        if probe is None:
            return None
        return cls(
            action={k: probe[k] for k in ("httpGet", "tcpSocket", "exec") if k in probe},
            initial_delay_s=probe.get("initialDelaySeconds", 0),
            period_s=probe.get("periodSeconds", 10),
            timeout_s=probe.get("timeoutSeconds", 1),
            success_threshold=probe.get("successThreshold", 1),
            failure_threshold=probe.get("failureThreshold", 3),
            grace_s=probe.get("terminationGracePeriodSeconds"),
        )


@dataclass(frozen=True, slots=True)
class ProbeState:
    """Counts of consecutive successes or failures, and the current verdict."""

    successes: int = 0
    failures: int = 0
    verdict: Verdict = "unknown"

    def observe(self, spec: ProbeSpec, passed: bool) -> "ProbeState":
        """Return the state after one more result. The verdict changes at a threshold."""
        if passed:
            state = replace(self, successes=self.successes + 1, failures=0)
            met = state.successes >= spec.success_threshold
            return replace(state, verdict="passing") if met else state
        state = replace(self, successes=0, failures=self.failures + 1)
        met = state.failures >= spec.failure_threshold
        return replace(state, verdict="failing") if met else state
