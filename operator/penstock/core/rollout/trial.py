"""The stored state of a canary's trial, from which a restarted operator continues the judgement."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.core.canary import judge as judges
from penstock.core.canary.estimate import Estimate
from penstock.core.canary.evidence import NO_REQUESTS, Arm, History
from penstock.core.canary.judge import Finding, JudgeState
from penstock.core.canary.metric_gate import MetricGateState
from penstock.core.canary.mirror import NO_COPIES, MirrorState
from penstock.core.canary.proportions import ProportionEstimate
from penstock.core.formats.serialization import DecodeError, deserialize, serialize
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import Object

VERSION: Literal[7] = 7
# Upper bound of reported e-values: larger ones carry no information, and infinity is not valid JSON.
MAX_E_VALUE = 1e12


@dataclass(frozen=True, slots=True)
class Trial:
    """Trial of a canary. Field names are the stored format.

    deployment: id of the trial, so that a retried revision is another one; of a service the uid of the
    canary's Deployment. mirror: evidence from copies of requests, before the canary had traffic. metrics:
    the user's metric gates, by name. canary, control: all requests since the canary had traffic,
    warm-up included, for reports.
    """

    version: Literal[7]
    deployment: str
    state: JudgeState
    mirror: MirrorState = NO_COPIES
    metrics: Mapping[str, MetricGateState] = field(default_factory=dict)
    canary: Arm = NO_REQUESTS
    control: Arm = NO_REQUESTS

    @classmethod
    def begin(cls, spec: CanarySpec, deployment: str, history: History) -> "Trial":
        """A new trial. history: baseline error counts of stable before the canary had traffic."""
        return cls(VERSION, deployment, judges.begin(spec, history))


def to_record(trial: Trial) -> dict[str, Any]:
    """The trial in JSON types."""
    record: dict[str, Any] = serialize(trial)
    return record


def from_record(record: object, deployment: str | None = None) -> Trial | None:
    """Read a stored trial; None if it is malformed, of another version or another trial.

    deployment: the expected id; None accepts any.
    """
    try:
        trial = deserialize(Trial, record)
    except DecodeError:
        return None
    return trial if deployment in (None, trial.deployment) else None


def evidence(spec: CanarySpec, state: JudgeState) -> tuple[Object, ...]:
    """The state of each test, in the status's format."""
    return tuple(_evidence(spec, state, finding) for finding in judges.evaluate_tests(spec, state))


def metric_gates(metrics: Mapping[str, MetricGateState]) -> tuple[Object, ...]:
    """The state of each metric gate, in the status's format."""
    return tuple(
        {"name": name, "kind": "Metric", "state": each.state, "message": each.said}
        for name, each in metrics.items()
    )


def _evidence(spec: CanarySpec, state: JudgeState, finding: Finding) -> Object:
    match finding.metric:
        case "TTFT":
            effect = _shift_effect(spec, state.ttft.estimate())
        case "TTFT with queues":
            effect = _shift_effect(spec, state.overall.estimate())
        case "TPOT":
            effect = _shift_effect(spec, state.tpot.estimate())
        case "Output length":
            effect = _shift_effect(spec, state.output.estimate())
        case "Errors":
            effect = _tally_effect(state.errors.reading(spec.alpha))
        case "Objective violations":
            effect = _tally_effect(state.violations.reading(spec.alpha))
    return {
        "metric": finding.metric,
        **effect,
        "eValue": _rounded(min(MAX_E_VALUE, finding.e_value)),
        "verdict": _verdict(spec, finding),
    }


def _verdict(spec: CanarySpec, finding: Finding) -> str:
    """Whether the effect is shown to be within its tolerance, or beyond it."""
    if finding.is_within:
        return "Within"
    return "Beyond" if finding.e_value >= 1 / spec.alpha else "Undecided"


def _shift_effect(spec: CanarySpec, estimate: Estimate) -> Object:
    """Latency effect relative to the control; without bounds while there are too few samples."""
    effect: Object = {
        "effect": _rounded(math.expm1(min(estimate.difference, 9.0))),
        "canarySamples": estimate.canary_n,
        "controlSamples": estimate.control_n,
    }
    radius = estimate.radius(spec.log_tolerance, spec.alpha)
    if math.isfinite(radius):
        effect["low"] = _rounded(math.expm1(min(estimate.difference - radius, 9.0)))
        effect["high"] = _rounded(math.expm1(min(estimate.difference + radius, 9.0)))
    return effect


def _tally_effect(reading: ProportionEstimate) -> Object:
    """Difference of the shares of requests with an event (error, late), and its upper bound."""
    return {
        "effect": _rounded(reading.difference),
        "high": _rounded(reading.high),
        "canarySamples": reading.canary.requests,
        "controlSamples": reading.control.requests,
    }


def _rounded(value: float) -> float:
    """Round to four significant digits, so that noise does not change the status."""
    return float(f"{value:.4g}")
