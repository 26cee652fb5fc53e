"""NVIDIA Dynamo planner, throughput mode: divides a forecast of the next interval by the best rate.

Source: ai-dynamo components/src/dynamo/planner (throughput_scaling.py, predictors.py), aggregated
engines. Predictors: `constant` and `kalman` are exact; the default ARIMA and Prophet are left out,
and `kalman` (local linear trend, as published) stands in for them. The forecast is one interval ahead,
whatever the start-up time. An interval without requests changes nothing.
"""

from dataclasses import dataclass, replace
from typing import Literal

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding
from penstock.sim.baselines.answer import decided, held, unchanged
from penstock.sim.baselines.dynamo_model import best_rate
from penstock.sim.baselines.hit_rate import Prefixes, hit_rate, prefixes
from penstock.sim.baselines.kalman import Trend


@dataclass(frozen=True, slots=True)
class ThroughputState:
    """State of the rule. trends: of requests per interval, prompt tokens and output tokens."""

    before: GatewayReading | None = None
    prefixes: Prefixes | None = None
    trends: tuple[Trend, Trend, Trend] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoThroughput:
    """Throughput rule. objective_share: fraction of the objectives that is the planner's target."""

    profile: EngineProfile
    objective_share: float = 1.0
    predictor: Literal["constant", "kalman"] = "constant"
    period_s: float = 180.0

    def initial(self) -> ThroughputState:
        return ThroughputState()

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: ThroughputState
    ) -> tuple[Decision, ThroughputState]:
        gateway = seen.gateway
        if not isinstance(gateway, GatewayReading):
            return held(bounds, seen, "The frontend's metrics are unavailable.", "NoTraffic"), state
        before, seen_prefixes = state.before, prefixes(seen)
        cached = hit_rate(state.prefixes, seen_prefixes)
        state = replace(state, before=gateway, prefixes=seen_prefixes)
        if before is None or gateway.at_s <= before.at_s or gateway.arrivals < before.arrivals:
            return unchanged(bounds, seen, "The first interval is not over.", "NoTraffic"), state
        requests = gateway.arrivals - before.arrivals
        ended = gateway.ended - before.ended
        if not requests or not ended:
            return unchanged(bounds, seen, "No active requests.", "NoTraffic"), state
        isl = (gateway.prompt_tokens - before.prompt_tokens) / requests
        osl = (gateway.output_tokens - before.output_tokens) / ended
        state, (next_requests, isl, osl) = self._forecast(state, (requests, isl, osl))
        goal = Objectives(
            objectives.ttft_s * self.objective_share, objectives.tpot_s * self.objective_share
        )
        rps = next_requests / (gateway.at_s - before.at_s)
        rate = best_rate(self.profile, goal, max(1.0, isl), max(1.0, osl), cached)
        wanted = max(1, rounding.up(rps / rate))
        why = f"{rps:.2f} requests/s forecast, {rate:.2f} a replica"
        trail = (
            TrailEntry("throughput", wanted, f"{isl:.0f} in, {osl:.0f} out, {cached:.0%} hits"),
        )
        return decided(bounds, seen, wanted, why, trail), state

    def _forecast(
        self, state: ThroughputState, values: tuple[float, float, float]
    ) -> tuple[ThroughputState, tuple[float, float, float]]:
        if self.predictor == "constant":
            return state, values
        past = state.trends or (None, None, None)
        first, second, third = (
            trend.then(value) if trend else Trend(value)
            for trend, value in zip(past, values, strict=True)
        )
        state = replace(state, trends=(first, second, third))
        return state, (first.next, second.next, third.next)
