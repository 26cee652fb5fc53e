"""P90 of TTFT and TPOT over a minute, as a fraction of the objectives."""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.load import readings_by_pod


@dataclass(frozen=True, slots=True)
class Scrape:
    """Scrape with TTFT and TPOT histograms by source."""

    at_s: float
    counted: dict[str, tuple[Histogram, Histogram]]


Scrapes: TypeAlias = tuple[Scrape, ...]


@dataclass(frozen=True, slots=True)
class LatencyTail:
    """Quantile of latency over a window."""

    quantile: float = 0.9
    window_s: float = 60.0

    def scraped(self, seen: Observation, past: Scrapes) -> Scrapes:
        """Add a scrape. Nothing is added if the gateway cannot be scraped."""
        now = seen.now_s
        kept = tuple(s for s in past if s.at_s >= now - self.window_s - 1e-6)
        counted = _counted(seen)
        if counted is None:
            return kept
        return (*kept, Scrape(now, counted))

    def ratio(self, objectives: Objectives, past: Scrapes, now_s: float) -> float:
        """The worse of both ratios; 0 without traffic, and also after a lost scrape, as published."""
        scrapes = [s for s in past if s.at_s >= now_s - self.window_s - 1e-6]
        pair = self._measured(scrapes)
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


def _counted(seen: Observation) -> dict[str, tuple[Histogram, Histogram]] | None:
    gateway = seen.gateway
    if isinstance(gateway, GatewayReading):
        return {"gateway": (gateway.ttft_s, gateway.tpot_s)}
    if gateway is not None:
        return None
    return {name: (r.ttft_s, r.itl_s) for name, r in readings_by_pod(seen).items()}


def _quantile(histograms: list[Histogram], q: float) -> float | None:
    if not histograms:
        return None
    whole = histograms[0]
    for more in histograms[1:]:
        whole = whole.plus(more)
    return whole.quantile(q)
