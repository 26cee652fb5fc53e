"""Metric gates: evaluates a user's Prometheus query against its limits, measurement by measurement."""

from dataclasses import dataclass, replace
from typing import Literal

from penstock.core.spec.metric_gate import MetricGate

# Waiting: not queried yet. Unreadable: the last query failed. Failed: too many measurements failed.
GateState = Literal["Waiting", "Passing", "Failing", "NoData", "Unreadable", "Failed"]


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """The query had no answer, or one that is not a number. reason: a sentence that says what to change."""

    reason: str


# An answer is None if the query matches no series, or if its value is NaN.
Answer = float | QueryFailure | None


@dataclass(frozen=True, slots=True)
class MetricGateState:
    """State of one gate. Field names are stored.

    elapsed_s: since the canary was first judged. next_s: time of the next query, on the same clock. failed:
    number of failed measurements. said: the last measurement in words.
    """

    elapsed_s: float = 0.0
    next_s: float = 0.0
    measurements: int = 0
    failed: int = 0
    state: GateState = "Waiting"
    said: str = "not measured yet"

    @property
    def is_open(self) -> bool:
        """Whether a promotion waits for this gate."""
        return self.state != "Passing"


NOT_MEASURED = MetricGateState()


def advance(
    gate: MetricGate, before: MetricGateState, length_s: float
) -> tuple[MetricGateState, bool]:
    """The gate `length_s` later, and whether its query is due."""
    first_s = before.next_s or gate.initial_delay_s
    after = replace(before, elapsed_s=before.elapsed_s + length_s, next_s=first_s)
    return after, after.elapsed_s >= first_s


def record_answer(gate: MetricGate, before: MetricGateState, answer: Answer) -> MetricGateState:
    """The gate after an answer. A failed query counts neither for nor against the canary."""
    asked = replace(before, next_s=before.elapsed_s + gate.interval_s)
    if isinstance(answer, QueryFailure):
        return replace(asked, state="Unreadable", said=answer.reason)
    if answer is None and gate.no_data == "Hold":
        return replace(asked, state="NoData", said="the query returned no data")
    if answer is None:
        is_fault, said = gate.no_data == "Fail", "no data"
    else:
        is_fault = not gate.minimum <= answer <= gate.maximum
        said = f"{answer:.6g}{_missed_bound(gate, answer)}"
    asked = replace(
        asked, measurements=asked.measurements + 1, failed=asked.failed + is_fault, said=said
    )
    if asked.failed > gate.failure_limit:
        said = f"{said}; {asked.failed} of {asked.measurements} measurements failed"
        return replace(asked, state="Failed", said=f"{said}, failureLimit is {gate.failure_limit}")
    return replace(asked, state="Failing" if is_fault else "Passing")


def _missed_bound(gate: MetricGate, value: float) -> str:
    if value < gate.minimum:
        return f", below its minimum {gate.minimum:g}"
    return f", above its maximum {gate.maximum:g}" if value > gate.maximum else ""
