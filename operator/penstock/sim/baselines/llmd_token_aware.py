"""llm-d token-aware KEDA rule: the larger of prefill backlog in seconds and KV use in pods.

Source: llm-d guides/workload-autoscaling/keda-epp-token-aware (prefill and decode in one pod).
Absent series read as 0 (`or vector(0)`), as published.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.hpa.autoscaler import Activation, Hpa
from penstock.sim.baselines.hpa.behavior import Behavior, Direction, Policy
from penstock.sim.baselines.hpa.metric import AverageMetric

Averages: TypeAlias = tuple[AverageMetric, ...]


def llmd_token_aware(
    profile: EngineProfile,
    backlog_s: float = 1.5,
    kv_target: float = 0.8,
    up_period_s: float = 180,
    down_period_s: float = 300,
) -> Hpa[Averages]:
    """Build the rule: at most one replica up per up_period_s and one down per down_period_s."""
    return Hpa(
        source=TokenBacklog(profile.prefill_tokens_per_s, backlog_s, kv_target),
        behavior=Behavior(
            Direction((Policy("Pods", 1, up_period_s),), 0),
            Direction((Policy("Pods", 1, down_period_s),), down_period_s),
        ),
        activation=Activation(),
    )


@dataclass(frozen=True, slots=True)
class TokenBacklog:
    """Source of the rule. prefill_tokens_per_s: llm-d's V_P, measured on one idle replica."""

    prefill_tokens_per_s: float
    backlog_s: float
    kv_target: float

    def initial(self) -> Averages:
        return ()

    def scrape(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, series: Averages
    ) -> Averages:
        backlog = _prefill_tokens(seen) / self.prefill_tokens_per_s
        kv = sum(reading.kv_usage for reading in seen.readings)
        return (
            AverageMetric("prefill backlog in seconds", self.backlog_s, backlog),
            AverageMetric("full KV caches", self.kv_target, kv),
        )

    def metrics(self, series: Averages) -> Averages:
        return series


def _prefill_tokens(seen: Observation) -> int:
    """Prompt tokens sent to engines and not yet prefilled, without the gateway's queue."""
    if isinstance(seen.gateway, GatewayReading):
        return seen.gateway.in_flight_prefill_tokens
    if seen.gateway is None:
        return sum(reading.prefill_tokens_pending for reading in seen.readings)
    return 0
