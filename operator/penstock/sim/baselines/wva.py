"""llm-d Workload Variant Autoscaler: a desired count every 60 s, which an HPA uses as its metric.

Source: llm-d workload-variant-autoscaler 0.9 (deprecated); the HPA as in llm-d's guide: 120 s
windows both ways. With several variants it adds the cheapest replica and removes the most expensive one; the
simulator leaves that choice to the fleet. V1 and V2 differ in their analyzer.
"""

from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import EngineReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.hpa.autoscaler import Hpa
from penstock.sim.baselines.hpa.behavior import Behavior, Direction, Policy
from penstock.sim.baselines.hpa.metric import AverageMetric
from penstock.sim.baselines.load import readings_by_pod

MemoryT = TypeVar("MemoryT")

PEAK_WINDOW_S = 60.0
LENGTHS_WINDOW_S = 300.0


@dataclass(frozen=True, slots=True)
class PodLoad:
    """Load of one pod. kv_usage, waiting: maximum of the last minute. Lengths: mean of five minutes."""

    kv_usage: float
    waiting: int
    kv_capacity_tokens: int
    input_tokens: float
    output_tokens: float
    hit_rate: float

    @property
    def kv_tokens(self) -> float:
        return self.kv_usage * self.kv_capacity_tokens


class Analyzer(Protocol[MemoryT]):
    """Computes the desired replicas of a variant."""

    def initial(self) -> MemoryT: ...

    def target(
        self, seen: Observation, loads: tuple[PodLoad, ...], desired: int, memory: MemoryT
    ) -> tuple[int, MemoryT]:
        """Desired replicas. desired: the previous result, 0 at first."""
        ...


@dataclass(frozen=True, slots=True)
class WvaSeries(Generic[MemoryT]):
    """Series of the rule. readings: (time, reading) of each pod, oldest first."""

    memory: MemoryT
    readings: dict[str, tuple[tuple[float, EngineReading], ...]]
    desired: int = 0
    next_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wva(Generic[MemoryT]):
    """HPA source that runs an analyzer every reconcile_s."""

    analyzer: Analyzer[MemoryT]
    reconcile_s: float = 60.0

    def initial(self) -> WvaSeries[MemoryT]:
        return WvaSeries(self.analyzer.initial(), {})

    def scrape(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, series: WvaSeries[MemoryT]
    ) -> WvaSeries[MemoryT]:
        now, fresh = seen.now_s, readings_by_pod(seen)
        readings = {}
        for pod in seen.ready:
            past = series.readings.get(pod.name, ())
            kept = tuple(r for r in past if r[0] > now - LENGTHS_WINDOW_S)
            readings[pod.name] = (*kept, (now, fresh[pod.name])) if pod.name in fresh else kept
        series = replace(series, readings=readings)
        if series.next_s is not None and now < series.next_s - 1e-6:
            return series
        loads = tuple(load for r in readings.values() if (load := _load(r, now)) is not None)
        if not loads:
            kept_number = series.desired or seen.provisioned
            return replace(series, desired=kept_number, next_s=now + self.reconcile_s)
        number, memory = self.analyzer.target(seen, loads, series.desired, series.memory)
        number = bounds.clip(number)
        return replace(series, desired=number, memory=memory, next_s=now + self.reconcile_s)

    def metrics(self, series: WvaSeries[MemoryT]) -> tuple[AverageMetric, ...]:
        if series.next_s is None:
            return ()
        return (AverageMetric("wva_desired_replicas", 1.0, series.desired),)


def wva_hpa(analyzer: Analyzer[MemoryT], window_s: float) -> Hpa[WvaSeries[MemoryT]]:
    """HPA around an analyzer, with the same stabilization window both ways."""
    doubling = (Policy("Percent", 100, 15),)
    behavior = Behavior(Direction(doubling, window_s), Direction(doubling, window_s))
    return Hpa(source=Wva(analyzer), behavior=behavior)


def _load(readings: tuple[tuple[float, EngineReading], ...], now_s: float) -> PodLoad | None:
    recent = [r for at_s, r in readings if at_s > now_s - PEAK_WINDOW_S]
    if not recent:
        return None
    first, last = readings[0][1], readings[-1][1]
    prompts = last.ttft_s.count - first.ttft_s.count
    prompt_tokens = last.prompt_tokens - first.prompt_tokens
    finished = last.finished - first.finished
    output_tokens = last.output_tokens_finished - first.output_tokens_finished
    return PodLoad(
        kv_usage=max(r.kv_usage for r in recent),
        waiting=max(r.waiting for r in recent),
        kv_capacity_tokens=last.kv_capacity_tokens,
        input_tokens=prompt_tokens / prompts if prompts > 0 else 0.0,
        output_tokens=output_tokens / finished if finished > 0 else 0.0,
        hit_rate=_ratio(last.cached_tokens - first.cached_tokens, prompt_tokens),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
