"""WVA V2: demand in tokens against the capacity per replica, bound by memory or by compute.

Source: internal/engines/analyzers/saturation_v2. Demand is tokens in use, waiting, and in
the gateway's queue. It scales up above 0.85 of the supply of ready and starting replicas, and down below 0.70
of the supply of ready ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeAlias

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.sim.baselines import rounding
from penstock.sim.baselines.hpa.autoscaler import Hpa
from penstock.sim.baselines.wva import PodLoad, WvaSeries, wva_hpa

SaturatedTokens: TypeAlias = Mapping[str, tuple[float, ...]]
"""Tokens in use under a full queue, by bucket of output length: the last ten samples."""

HISTORY = 10


def wva_v2(
    profile: EngineProfile,
    up_at: float = 0.85,
    down_at: float = 0.70,
    kv_threshold: float = 0.80,
    queue_threshold: float = 5,
    hpa_window_s: float = 120,
) -> Hpa[WvaSeries[SaturatedTokens]]:
    tokens = TokenAnalyzer(profile, up_at, down_at, kv_threshold, queue_threshold)
    return wva_hpa(tokens, hpa_window_s)


@dataclass(frozen=True, slots=True)
class TokenAnalyzer:
    """Analyzer of V2. profile: WVA reads the two limits of a batch from the engine's arguments."""

    profile: EngineProfile
    up_at: float
    down_at: float
    kv_threshold: float
    queue_threshold: float

    def initial(self) -> SaturatedTokens:
        return {}

    def target(
        self, seen: Observation, loads: tuple[PodLoad, ...], desired: int, memory: SaturatedTokens
    ) -> tuple[int, SaturatedTokens]:
        capacities = []
        for load in loads:
            compute, memory = self._compute_bound(load, memory)
            capacities.append(min(self.kv_threshold * load.kv_capacity_tokens, compute))
        each = max(1.0, median(capacities))  # at least one token: an idle engine may report 0
        demand = sum(load.kv_tokens + load.waiting * load.input_tokens for load in loads)
        demand += _held_back(seen, loads)
        current, ready = seen.provisioned, len(seen.ready)
        need = demand / self.up_at - current * each
        spare = ready * each - demand / self.down_at
        if need > 0:
            return current + rounding.up(need / each), memory
        if spare > 0:
            return max(1, current - rounding.down(spare / each)), memory
        return current, memory

    def _compute_bound(
        self, load: PodLoad, memory: SaturatedTokens
    ) -> tuple[float, SaturatedTokens]:
        """Compute bound in tokens: measured under a full queue, else remembered, else derived, else none."""
        bucket = _bucket(load.output_tokens)
        if load.waiting >= self.queue_threshold and load.kv_tokens > 0:
            past = (*memory.get(bucket, ()), load.kv_tokens)[-HISTORY:]
            return load.kv_tokens, {**memory, bucket: past}
        if memory.get(bucket):
            return fmean(memory[bucket]), memory
        if load.output_tokens > 0:
            return self.derived(load.input_tokens, load.output_tokens), memory
        return float("inf"), memory

    def derived(self, input_tokens: float, output_tokens: float) -> float:
        """Tokens in use in the steady state, where prompts arrive as fast as answers end."""
        share = output_tokens / (input_tokens + output_tokens)
        steady = min(self.profile.max_batched_tokens * share, self.profile.max_sequences)
        return steady * (input_tokens + output_tokens / 2)


def _bucket(output_tokens: float) -> str:
    if output_tokens < 100:
        return "short"
    return "medium" if output_tokens < 500 else "long"


def _held_back(seen: Observation, loads: tuple[PodLoad, ...]) -> float:
    """Tokens that the gateway's queue will need: uncached prompt tokens and output tokens."""
    if not isinstance(seen.gateway, GatewayReading):
        return 0.0
    known = [load for load in loads if load.input_tokens > 0 or load.output_tokens > 0]
    if not known or not seen.gateway.queued:
        return float(seen.gateway.queued_prompt_tokens)
    queued = seen.gateway.queued
    prompts = queued * fmean(load.input_tokens for load in known)
    hit_rate = fmean(load.hit_rate for load in known)
    answers = queued * fmean(load.output_tokens for load in known)
    return max(seen.gateway.queued_prompt_tokens, prompts) * (1 - hit_rate) + answers
