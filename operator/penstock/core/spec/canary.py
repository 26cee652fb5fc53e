"""Canary settings of a service, with all defaults applied."""

import math
from dataclasses import dataclass
from typing import Literal

from penstock.core.spec.metric_gate import MetricGate


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """Mirroring to the canary before it gets traffic. duration_s: counts only time with copies."""

    percent: int = 10
    duration_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySpec:
    """Canary settings."""

    alpha: float = 0.01  # probability that a canary equal to stable is ever aborted, over all tests
    # Relative regression of TTFT and TPOT that a promoted canary must stay below
    latency_tolerance: float = 0.10
    # error_tolerance, violation_tolerance: the same for shares of requests, absolute
    error_tolerance: float = 0.01
    violation_tolerance: float = 0.05
    # min_weight, max_weight: share of the traffic
    min_weight: float = 0.05
    max_weight: float = 0.50
    max_duration_s: float = 3600.0
    on_timeout: Literal["Rollback", "Promote"] = "Rollback"
    metrics: tuple[MetricGate, ...] = ()  # the user's metric gates
    mirror: MirrorSpec | None = None  # None for no mirroring

    @property
    def log_tolerance(self) -> float:
        return math.log1p(self.latency_tolerance)
