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


# Quantile of the latencies, and the window that it is taken over, in seconds.
QUANTILE, WINDOW_S = 0.9, 60.0


def add_scrape(seen: Observation, past: Scrapes) -> Scrapes:
    """Add a scrape. Nothing is added if the gateway cannot be scraped."""
    kept = _in_window(past, seen.now_s)
    counted = _counted(seen)
    return kept if counted is None else (*kept, Scrape(seen.now_s, counted))


def latency_ratio(objectives: Objectives, past: Scrapes, now_s: float) -> float:
    """The worse of both ratios; 0 without traffic, and also after a lost scrape, as published."""
    scrapes = _in_window(past, now_s)
    if len(scrapes) < 2:
        return 0.0
    first, last = scrapes[0].counted, scrapes[-1].counted
    ttft, tpot = (
        _quantile(
            [
                mine[k].increase_over(first[who][k] if who in first else None)
                for who, mine in last.items()
            ]
        )
        for k in (0, 1)
    )
    return max((ttft or 0.0) / objectives.ttft_s, (tpot or 0.0) / objectives.tpot_s)


def _in_window(past: Scrapes, now_s: float) -> Scrapes:
    return tuple(s for s in past if s.at_s >= now_s - WINDOW_S - 1e-6)


def _counted(seen: Observation) -> dict[str, tuple[Histogram, Histogram]] | None:
    gateway = seen.gateway
    if isinstance(gateway, GatewayReading):
        return {"gateway": (gateway.ttft_s, gateway.tpot_s)}
    if gateway is not None:
        return None
    return {name: (r.ttft_s, r.itl_s) for name, r in readings_by_pod(seen).items()}


def _quantile(histograms: list[Histogram]) -> float | None:
    if not histograms:
        return None
    whole = histograms[0]
    for more in histograms[1:]:
        whole = whole.plus(more)
    return whole.quantile(QUANTILE)
