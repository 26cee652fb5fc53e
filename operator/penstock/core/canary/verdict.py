"""Verdicts of a canary's judge after a block of evidence."""

from dataclasses import dataclass
from typing import Literal

# Evidence: the tests. Gate: a fault or a metric gate. Timeout: maxDuration is over, onTimeout decides.
Cause = Literal["Evidence", "Gate", "Timeout"]


@dataclass(frozen=True, slots=True)
class Accept:
    """Promote the canary."""

    reason: str
    cause: Cause = "Evidence"


@dataclass(frozen=True, slots=True)
class Abort:
    """Roll the canary back."""

    reason: str
    cause: Cause = "Evidence"


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue the judgement. weight: the share of traffic that the canary has earned, 0 to 1."""

    reason: str
    weight: float


@dataclass(frozen=True, slots=True)
class Extend:
    """Continue without counting this block's time, because one side finished no request."""

    reason: str
    weight: float


@dataclass(frozen=True, slots=True)
class MirrorPassed:
    """Copies of requests showed no fault for the configured duration: the canary may get traffic."""

    reason: str


Verdict = Accept | Abort | Continue | Extend | MirrorPassed


def describe_progress(verdict: Verdict | None) -> str:
    """Text for users on how far a judgement is. verdict: the last one; None before the first."""
    return verdict.reason if verdict else "there is no evidence yet"
