"""What a judge may say after a block."""

from dataclasses import dataclass
from typing import Literal

# Evidence: the tests. Gate: a fault that needs none. Timeout: the time was up, spec.on_timeout spoke.
Cause = Literal["Evidence", "Gate", "Timeout"]


@dataclass(frozen=True, slots=True)
class Accept:
    reason: str
    cause: Cause = "Evidence"


@dataclass(frozen=True, slots=True)
class Abort:
    reason: str
    cause: Cause = "Evidence"


@dataclass(frozen=True, slots=True)
class Continue:
    """weight: the share of traffic that the canary has earned."""

    reason: str
    weight: float


@dataclass(frozen=True, slots=True)
class Extend:
    """Nothing was seen, so nothing is held for or against the canary: the time is added."""

    reason: str
    weight: float


@dataclass(frozen=True, slots=True)
class Shown:
    """Copies have shown no fault for as long as was asked for: it may meet callers."""

    reason: str


Verdict = Accept | Abort | Continue | Extend | Shown
