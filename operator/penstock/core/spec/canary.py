"""What a user decides about a canary, flat and without None."""

import math
from dataclasses import dataclass
from typing import Literal

from penstock.core.spec.metric_gate import MetricGate


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSpec:
    """share: of the requests that are copied. duration_s: of time with copies."""

    share: float = 0.1
    duration_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySpec:
    """alpha: the chance that a canary equal to stable is ever aborted, all tests together.

    tolerance: the relative regression of TTFT and TPOT that a promoted canary does not reach.
    error_tolerance, violation_tolerance: the same for shares of requests, in absolute terms.
    Weights are shares of traffic. metrics: the user's own, by names of their own. shadow: what it is
    shown before it has traffic, if anything.
    """

    alpha: float = 0.01
    tolerance: float = 0.10
    error_tolerance: float = 0.01
    violation_tolerance: float = 0.05
    min_weight: float = 0.05
    max_weight: float = 0.50
    max_duration_s: float = 3600.0
    on_timeout: Literal["Rollback", "Promote"] = "Rollback"
    metrics: tuple[MetricGate, ...] = ()
    shadow: ShadowSpec | None = None

    @property
    def log_tolerance(self) -> float:
        return math.log1p(self.tolerance)
