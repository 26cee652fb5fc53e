"""The stored state of a canary's trial, from which a restarted operator continues the judgement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.core.canary.arm import NO_REQUESTS, Arm
from penstock.core.canary.evidence import History
from penstock.core.canary.judge import Finding, evaluate_tests
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.metric_gate import MetricGateState
from penstock.core.canary.mirror import NO_COPIES, MirrorState
from penstock.core.formats.serialization import DecodeError, deserialize, serialize
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import Object

VERSION: Literal[7] = 7
# Upper bound of reported e-values: larger ones carry no information, and infinity is not valid JSON.
MAX_E_VALUE = 1e12


@dataclass(frozen=True, slots=True)
class Trial:
    """Trial of a canary. Field names are the stored format."""

    version: Literal[7]
    # Id of the trial, so that a retried revision is another one; of a service the uid of the canary's
    # Deployment
    deployment: str
    state: JudgeState
    # Evidence from copies of requests, before the canary had traffic
    mirror: MirrorState = NO_COPIES
    # The user's metric gates, by name
    metrics: Mapping[str, MetricGateState] = field(default_factory=dict)
    # canary, control: all requests since the canary had traffic, warm-up included, for reports
    canary: Arm = NO_REQUESTS
    control: Arm = NO_REQUESTS

    @classmethod
    def begin(cls, spec: CanarySpec, deployment: str, history: History) -> "Trial":
        """A new trial. history: baseline error counts of stable before the canary had traffic."""
        return cls(VERSION, deployment, JudgeState.begin(spec, history))


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
    return tuple(_evidence(spec, finding) for finding in evaluate_tests(spec, state))


def metric_gates(metrics: Mapping[str, MetricGateState]) -> tuple[Object, ...]:
    """The state of each metric gate, in the status's format."""
    return tuple(
        {"name": name, "kind": "Metric", "state": each.state, "message": each.said}
        for name, each in metrics.items()
    )


def _evidence(spec: CanarySpec, finding: Finding) -> Object:
    effect = finding.test.effect(spec)
    bounds = {"low": effect.low, "high": effect.high}
    return {
        "metric": finding.test.metric,
        "effect": _rounded(effect.increase),
        **{name: _rounded(bound) for name, bound in bounds.items() if bound is not None},
        "canarySamples": effect.canary_n,
        "controlSamples": effect.control_n,
        "eValue": _rounded(min(MAX_E_VALUE, finding.e_value)),
        "verdict": _verdict(spec, finding),
    }


def _verdict(spec: CanarySpec, finding: Finding) -> str:
    """Whether the effect is shown to be within its tolerance, or beyond it."""
    if finding.is_within:
        return "Within"
    return "Beyond" if finding.e_value >= 1 / spec.alpha else "Undecided"


def _rounded(value: float) -> float:
    """Round to four significant digits, so that noise does not change the status."""
    return float(f"{value:.4g}")
