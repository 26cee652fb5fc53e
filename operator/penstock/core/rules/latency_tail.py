"""P90 of TTFT and TPOT over a minute, as a share of the objectives: predicted, or else measured."""

from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.core.rule import Objectives
from penstock.core.rules.load import readings_by_pod
from penstock.core.rules.predicted import PodLatency, predicted
from penstock.core.rules.profile import EngineProfile
from penstock.core.signals import EngineReading, GatewayReading, Histogram, Observation


@dataclass(frozen=True, slots=True)
class Scrape:
    """Histograms of TTFT and TPOT by who counted them, and what was predicted for each pod."""

    at_s: float
    counted: dict[str, tuple[Histogram, Histogram]]
    readings: dict[str, EngineReading]
    predicted: tuple[PodLatency, ...] = ()


Scrapes: TypeAlias = tuple[Scrape, ...]


@dataclass(frozen=True, slots=True)
class LatencyTail:
    profile: EngineProfile | None
    quantile: float = 0.9
    window_s: float = 60.0

    def scraped(self, seen: Observation, past: Scrapes) -> Scrapes:
        """With one more; nothing new when a gateway that should tell cannot be read."""
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
        """The worse of both; 0 with no traffic, which is also what a lost scrape looks like."""
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
            [mine[k].since(first[who][k] if who in first else None) for who, mine in last.items()]
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
        at = min(len(pods) - 1, int(self.quantile * len(pods)))
        return sorted(p.ttft_s for p in pods)[at], sorted(p.tpot_s for p in pods)[at]


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
