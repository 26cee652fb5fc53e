"""Estimates the demand for adapters from the counters of gateways.

Popularity, for the choice of what stays in memory, is a slow average of arrivals. The number of requests
in flight, for the number of copies, rises at once and falls slowly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

from penstock.core.adapters.demand import AdapterCounts

# Time constant of popularity, in seconds. Long enough that an adapter with a request every few minutes
# stays ahead of one with a request an hour; a shift of popularity shows within as long.
POPULARITY_S = 600.0
# Time constant with which requests in flight fall, in seconds: pauses shorter than this keep the copies.
BUSY_FALL_S = 60.0
# Popularity below which there is no demand, requests/s: less than one request in about three hours.
MIN_POPULARITY_PER_S = 1e-4
# Time of a load while none has been measured, in seconds: the middle of what adapters take.
DEFAULT_LOAD_S = 0.5

NO_COUNTS = AdapterCounts()


@dataclass(frozen=True, slots=True)
class AdapterDemand:
    """Demand for one version of an adapter.

    requests_per_s: slow average of arrivals. busy: requests in flight and waiting, at once up and slowly
    down. load_s: mean time of a load. last_request_s: start of the last tick with an arrival; None: never.
    """

    requests_per_s: float = 0.0
    busy: float = 0.0
    load_s: float = DEFAULT_LOAD_S
    last_request_s: float | None = None

    @property
    def value(self) -> float:
        """Seconds of loading that a copy saves, per second: arrivals times the time of a load."""
        return self.requests_per_s * self.load_s


@dataclass(frozen=True, slots=True)
class DemandState:
    """Estimates of all adapters by their name in engines, and the counters that they were updated from."""

    at_s: float = 0.0
    counts: Mapping[str, AdapterCounts] = field(default_factory=dict)
    demand: Mapping[str, AdapterDemand] = field(default_factory=dict)


def estimate_demand(
    counts: Mapping[str, AdapterCounts], state: DemandState | None, now_s: float
) -> DemandState:
    """Update the estimates. counts: by name in engines, of all gateways together.

    The first counters are only the base of the next ones. Counters that fell are those of a process that
    started again.
    """
    if state is None:
        return DemandState(now_s, dict(counts), {n: _first(c) for n, c in counts.items()})
    elapsed_s = now_s - state.at_s
    if elapsed_s <= 0:
        return state
    kept = exp(-elapsed_s / POPULARITY_S), exp(-elapsed_s / BUSY_FALL_S)
    demand = {}
    for name in counts.keys() | state.demand.keys():
        before = state.demand.get(name, AdapterDemand())
        now, past = counts.get(name, NO_COUNTS), state.counts.get(name, NO_COUNTS)
        arrivals = _growth(now.arrivals, past.arrivals)
        popularity = before.requests_per_s * kept[0] + arrivals * (1 - kept[0]) / elapsed_s
        busy = max(float(now.in_flight + now.waiting), before.busy * kept[1])
        if popularity < MIN_POPULARITY_PER_S:
            popularity = 0.0
        if name in counts or popularity > 0:
            last_s = state.at_s if arrivals else before.last_request_s
            demand[name] = AdapterDemand(popularity, busy, _load_s(now, before), last_s)
    return DemandState(now_s, dict(counts), demand)


def _first(counts: AdapterCounts) -> AdapterDemand:
    busy = float(counts.in_flight + counts.waiting)
    return AdapterDemand(busy=busy, load_s=_load_s(counts, AdapterDemand()))


def _growth(now: int, past: int) -> int:
    return now - past if now >= past else now


def _load_s(counts: AdapterCounts, before: AdapterDemand) -> float:
    return counts.load_s / counts.loads if counts.loads and counts.load_s > 0 else before.load_s
