"""A canary before its judge, small enough to be kept: a new operator goes on from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.core.canary import judge as judges
from penstock.core.canary.estimate import Estimate
from penstock.core.canary.evidence import NO_REQUESTS, Arm, History
from penstock.core.canary.judge import Finding, JudgeState
from penstock.core.canary.metric_gate import Measured
from penstock.core.canary.shadow import NOT_SHOWN, ShadowState
from penstock.core.canary.tally import TallyReading
from penstock.core.formats.serialization import Unreadable, from_plain, to_plain
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import Object

VERSION: Literal[6] = 6
# More is no news, and no number for JSON.
MAX_E_VALUE = 1e12


@dataclass(frozen=True, slots=True)
class Trial:
    """deployment: the uid of the canary's. A revision that is tried again is another trial. shadow: of
    copies, before it had traffic. metrics: the user's own, by name. canary, control: all that came
    since it had some, warm-up included."""

    version: Literal[6]
    deployment: str
    state: JudgeState
    shadow: ShadowState = NOT_SHOWN
    metrics: Mapping[str, Measured] = field(default_factory=dict)
    canary: Arm = NO_REQUESTS
    control: Arm = NO_REQUESTS

    @classmethod
    def begin(cls, spec: CanarySpec, deployment: str, history: History) -> "Trial":
        """history: of stable, before the canary had traffic."""
        return cls(VERSION, deployment, judges.begin(spec, history))


def to_record(trial: Trial) -> dict[str, Any]:
    record: dict[str, Any] = to_plain(trial)
    return record


def from_record(record: object, deployment: str | None = None) -> Trial | None:
    """None when it is of another trial, of another version, or no such record. deployment None: of
    any."""
    try:
        trial = from_plain(Trial, record)
    except Unreadable:
        return None
    return trial if deployment in (None, trial.deployment) else None


def evidence(spec: CanarySpec, state: JudgeState) -> tuple[Object, ...]:
    """What each test holds, for the status."""
    return tuple(_evidence(spec, state, finding) for finding in judges.find(spec, state))


def metric_gates(metrics: Mapping[str, Measured]) -> tuple[Object, ...]:
    """How the user's metrics stand, for the status."""
    return tuple(
        {"name": name, "kind": "Metric", "state": each.state, "message": each.said}
        for name, each in metrics.items()
    )


def _evidence(spec: CanarySpec, state: JudgeState, finding: Finding) -> Object:
    match finding.metric:
        case "TTFT":
            effect = _of_shift(spec, state.ttft.estimate())
        case "TTFT with queues":
            effect = _of_shift(spec, state.overall.estimate())
        case "TPOT":
            effect = _of_shift(spec, state.tpot.estimate())
        case "Output length":
            effect = _of_shift(spec, state.output.estimate())
        case "Errors":
            effect = _of_tally(state.errors.reading(spec.alpha))
        case "Objective violations":
            effect = _of_tally(state.violations.reading(spec.alpha))
    return {
        "metric": finding.metric,
        **effect,
        "eValue": _rounded(min(MAX_E_VALUE, finding.e_value)),
        "isWithin": finding.is_within,
    }


def _of_shift(spec: CanarySpec, estimate: Estimate) -> Object:
    """Relative to the control; without bounds while too little was inputs."""
    said: Object = {
        "effect": _rounded(math.expm1(min(estimate.difference, 9.0))),
        "canarySamples": estimate.canary_n,
        "controlSamples": estimate.control_n,
    }
    radius = estimate.radius(spec.log_tolerance, spec.alpha)
    if math.isfinite(radius):
        said["low"] = _rounded(math.expm1(min(estimate.difference - radius, 9.0)))
        said["high"] = _rounded(math.expm1(min(estimate.difference + radius, 9.0)))
    return said


def _of_tally(reading: TallyReading) -> Object:
    """In shares of requests."""
    return {
        "effect": _rounded(reading.difference),
        "high": _rounded(reading.high),
        "canarySamples": reading.canary.requests,
        "controlSamples": reading.control.requests,
    }


def _rounded(value: float) -> float:
    """Four digits: more would be written to the status and mean nothing."""
    return float(f"{value:.4g}")
