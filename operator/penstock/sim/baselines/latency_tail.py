"""P90 of TTFT and TPOT over a minute, as a fraction of the objectives; predicted or measured."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.signals import EngineReading, GatewayReading, Histogram, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.load import readings_by_pod
from penstock.sim.baselines.predicted import PodLatency, predicted

# Buckets of llm-d-router's predicted latency. A quantile is interpolated within a bucket: TPOT between 20 and
# 40 ms gives a P90 of 38 ms, and with half of it above 40 ms 56 ms. The published thresholds of 40 and 55 %
# of 100 ms depend on these buckets.
TTFT_BUCKETS_S = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45,
    60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
)  # fmt: skip
TPOT_BUCKETS_S = (
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6,
    0.8, 1, 1.5, 2, 3, 4.5, 6, 12, 18, 24, 30, 36, 48, 60, 90, 120, 180, 270, 360,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scrape:
    """Scrape with TTFT and TPOT histograms by source, and the predicted latency of each pod."""

    at_s: float
    counted: dict[str, tuple[Histogram, Histogram]]
    readings: dict[str, EngineReading]
    predicted: tuple[PodLatency, ...] = ()


Scrapes: TypeAlias = tuple[Scrape, ...]


@dataclass(frozen=True, slots=True)
class LatencyTail:
    """Quantile of latency over a window. profile: of the predictor; None for measured latency."""

    profile: EngineProfile | None
    quantile: float = 0.9
    window_s: float = 60.0

    def scraped(self, seen: Observation, past: Scrapes) -> Scrapes:
        """Add a scrape. Nothing is added if the gateway cannot be scraped."""
        now = seen.now_s
        kept = tuple(s for s in past if s.at_s >= now - self.window_s - 1e-6)
        counted = _counted(seen)
        if counted is None:
            return kept
        scrape = Scrape(now, counted, readings_by_pod(seen))
        if self.profile is not None:
            before = {n: (s.at_s, r) for s in reversed(kept) for n, r in s.readings.items()}
            scrape = replace(scrape, predicted=predicted(self.profile, before, seen))
        return (*kept, scrape)

    def ratio(self, objectives: Objectives, past: Scrapes, now_s: float) -> float:
        """The worse of both ratios; 0 without traffic, and also after a lost scrape, as published."""
        scrapes = [s for s in past if s.at_s >= now_s - self.window_s - 1e-6]
        pair = self._predicted(scrapes) or self._measured(scrapes)
        if pair is None:
            return 0.0
        return max(pair[0] / objectives.ttft_s, pair[1] / objectives.tpot_s)

    def _measured(self, scrapes: list[Scrape]) -> tuple[float, float] | None:
        if len(scrapes) < 2:
            return None
        first, last = scrapes[0].counted, scrapes[-1].counted
        since = [
            [
                mine[k].increase_over(first[who][k] if who in first else None)
                for who, mine in last.items()
            ]
            for k in (0, 1)
        ]
        ttft, tpot = (_quantile(histograms, self.quantile) for histograms in since)
        if ttft is None and tpot is None:
            return None
        return ttft or 0.0, tpot or 0.0

    def _predicted(self, scrapes: list[Scrape]) -> tuple[float, float] | None:
        pods = [pod for scrape in scrapes for pod in scrape.predicted]
        if not pods:
            return None
        ttft = _tallied(TTFT_BUCKETS_S, [pod.ttft_s for pod in pods]).quantile(self.quantile)
        tpot = _tallied(TPOT_BUCKETS_S, [pod.tpot_s for pod in pods]).quantile(self.quantile)
        return ttft or 0.0, tpot or 0.0


def _counted(seen: Observation) -> dict[str, tuple[Histogram, Histogram]] | None:
    gateway = seen.gateway
    if isinstance(gateway, GatewayReading):
        return {"gateway": (gateway.ttft_s, gateway.tpot_s)}
    if gateway is not None:
        return None
    return {name: (r.ttft_s, r.itl_s) for name, r in readings_by_pod(seen).items()}


def _tallied(bounds: tuple[float, ...], values: list[float]) -> Histogram:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return Histogram(bounds, tuple(counts), sum(values))


def _quantile(histograms: list[Histogram], q: float) -> float | None:
    if not histograms:
        return None
    whole = histograms[0]
    for more in histograms[1:]:
        whole = whole.plus(more)
    return whole.quantile(q)
