"""WVA V2: demand in tokens against a capacity per replica that memory or compute sets.

Source: internal/engines/analyzers/saturation_v2. Tokens in use and waiting, plus what the gateway
holds, over 0.85 of the supply that is there or starts; down against 0.70 of what is ready.
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

Seen: TypeAlias = Mapping[str, tuple[float, ...]]
"""Tokens in use under a full queue, by bucket of output length: the last ten."""

HISTORY = 10


def wva_v2(
    profile: EngineProfile,
    up_at: float = 0.85,
    down_at: float = 0.70,
    kv_threshold: float = 0.80,
    queue_threshold: float = 5,
    hpa_window_s: float = 120,
) -> Hpa[WvaSeries[Seen]]:
    tokens = TokenAnalyzer(profile, up_at, down_at, kv_threshold, queue_threshold)
    return wva_hpa(tokens, hpa_window_s)


@dataclass(frozen=True, slots=True)
class TokenAnalyzer:
    """profile: max_batched_tokens and max_sequences, which WVA reads off the engine's arguments."""

    profile: EngineProfile
    up_at: float
    down_at: float
    kv_threshold: float
    queue_threshold: float

    def initial(self) -> Seen:
        return {}

    def target(
        self, seen: Observation, loads: tuple[PodLoad, ...], desired: int, memory: Seen
    ) -> tuple[int, Seen]:
        capacities = []
        for load in loads:
            compute, memory = self._compute_bound(load, memory)
            capacities.append(min(self.kv_threshold * load.kv_capacity_tokens, compute))
        each = max(1.0, median(capacities))  # a token: what an idle engine remembers may be none
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

    def _compute_bound(self, load: PodLoad, memory: Seen) -> tuple[float, Seen]:
        """Seen under a full queue, remembered, derived from lengths, or none, in this order."""
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
        """Tokens held in the steady state in which prompts come in as fast as answers end."""
        share = output_tokens / (input_tokens + output_tokens)
        steady = min(self.profile.max_batched_tokens * share, self.profile.max_sequences)
        return steady * (input_tokens + output_tokens / 2)


def _bucket(output_tokens: float) -> str:
    if output_tokens < 100:
        return "short"
    return "medium" if output_tokens < 500 else "long"


def _held_back(seen: Observation, loads: tuple[PodLoad, ...]) -> float:
    """Tokens that the gateway's queue will take: prompts less what is cached, and answers."""
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
