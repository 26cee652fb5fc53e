"""A user's own number as a gate: a query, what its answers may be, and what they came to so far."""

from dataclasses import dataclass, replace
from typing import Literal

from penstock.core.spec.metric_gate import MetricGate

# Waiting: not asked yet. Unreadable: the last answer was none. Failed: it has failed too often.
GateState = Literal["Waiting", "Passing", "Failing", "NoData", "Unreadable", "Failed"]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There was no answer, or one that is not a number. reason: what to change, as a sentence."""

    reason: str


# None: the query matches nothing, or gives NaN.
Answer = float | Unreadable | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one gate. elapsed_s: since the canary was first judged. next_s: when it is to be asked
    again. failed: of so many measurements."""

    elapsed_s: float = 0.0
    next_s: float = 0.0
    measurements: int = 0
    failed: int = 0
    state: GateState = "Waiting"
    said: str = "it is not measured yet"

    @property
    def is_open(self) -> bool:
        """Whether a promotion waits for it."""
        return self.state != "Passing"


UNMEASURED = Measured()


def later(gate: MetricGate, before: Measured, length_s: float) -> tuple[Measured, bool]:
    """After so much time: and whether it is to be asked now."""
    first_s = before.next_s or gate.initial_delay_s
    after = replace(before, elapsed_s=before.elapsed_s + length_s, next_s=first_s)
    return after, after.elapsed_s >= first_s


def measured(gate: MetricGate, before: Measured, answer: Answer) -> Measured:
    """After an answer. What cannot be read counts neither for nor against the canary."""
    asked = replace(before, next_s=before.elapsed_s + gate.interval_s)
    if isinstance(answer, Unreadable):
        return replace(asked, state="Unreadable", said=answer.reason)
    if answer is None and gate.no_data == "Hold":
        return replace(asked, state="NoData", said="the query gives no data")
    if answer is None:
        is_fault, said = gate.no_data == "Fail", "no data"
    else:
        is_fault = not gate.minimum <= answer <= gate.maximum
        said = f"{answer:.6g}{_beside(gate, answer)}"
    asked = replace(
        asked, measurements=asked.measurements + 1, failed=asked.failed + is_fault, said=said
    )
    if asked.failed > gate.failure_limit:
        said = f"{said}; {asked.failed} of {asked.measurements} measurements failed"
        return replace(asked, state="Failed", said=f"{said}, failureLimit is {gate.failure_limit}")
    return replace(asked, state="Failing" if is_fault else "Passing")


def _beside(gate: MetricGate, value: float) -> str:
    if value < gate.minimum:
        return f", below its minimum {gate.minimum:g}"
    return f", above its maximum {gate.maximum:g}" if value > gate.maximum else ""
