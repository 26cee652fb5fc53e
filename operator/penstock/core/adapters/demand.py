"""Demand for adapters: the counters of gateways, and what is estimated from them.

Popularity, for the choice of what stays in memory, is a slow average of arrivals. The number of requests
in flight, for the number of copies, rises at once and falls slowly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

# Time constant of popularity, in seconds. A shift of popularity shows within as long. 150 to 1200 s gave the
# same number of loads to within 3 % in the simulator, with and without shifts.
POPULARITY_S = 300.0
# Time constant with which requests in flight fall, in seconds: pauses shorter than this keep the copies.
BUSY_FALL_S = 60.0
# Popularity below which there is no demand, requests/s: less than one request in about three hours.
MIN_POPULARITY_PER_S = 1e-4


@dataclass(frozen=True, slots=True)
class AdapterCounts:
    """Requests for one version of an adapter. Counters grow from the start of the gateway's process."""

    arrivals: int = 0
    work_tokens: int = 0  # prompt and output
    misses: int = 0  # requests without a resident copy at arrival
    loads: int = 0  # successful loads
    load_failures: int = 0
    failed: int = 0
    load_s: float = 0.0  # of these loads together
    in_flight: int = 0  # at engines; a gauge
    waiting: int = 0  # for a copy, or for room on an engine that has one; a gauge


NO_COUNTS = AdapterCounts()


@dataclass(frozen=True, slots=True)
class AdapterDemand:
    """Demand for one version of an adapter.

    requests_per_s: slow average of arrivals, its popularity. in_flight: requests at engines and waiting.
    busy: the same, at once up and slowly down. last_request_s: start of the last tick with an arrival; None:
    never.
    """

    requests_per_s: float = 0.0
    in_flight: int = 0
    busy: float = 0.0
    last_request_s: float | None = None


NO_DEMAND = AdapterDemand()


@dataclass(frozen=True, slots=True)
class DemandState:
    """Estimates of all adapters by their name in engines, and the counters that they were updated from."""

    at_s: float = 0.0
    counts: Mapping[str, AdapterCounts] = field(default_factory=dict)
    demand: Mapping[str, AdapterDemand] = field(default_factory=dict)


def estimate_demand(
    counts: Mapping[str, AdapterCounts],
    state: DemandState | None,
    now_s: float,
    shown_per_s: Mapping[str, float] = {},
) -> DemandState:
    """Update the estimates. counts: by name in engines, of all gateways together.

    The first counters are only the base of the next ones. shown_per_s: popularity by name as statuses show
    it, with which the first estimate starts: a new process has seen no requests. Counters that fell are those
    of a process that started again.
    """
    if state is None:
        first = {}
        for name in counts.keys() | shown_per_s.keys():
            num_open = _num_open(counts.get(name, NO_COUNTS))
            first[name] = AdapterDemand(shown_per_s.get(name, 0.0), num_open, num_open)
        return DemandState(now_s, dict(counts), first)
    elapsed_s = now_s - state.at_s
    if elapsed_s <= 0:
        return state
    kept, busy_kept = exp(-elapsed_s / POPULARITY_S), exp(-elapsed_s / BUSY_FALL_S)
    per_arrival = (1 - kept) / elapsed_s
    demand = {}
    for name in counts.keys() | state.demand.keys():
        before = state.demand.get(name, NO_DEMAND)
        now = counts.get(name, NO_COUNTS)
        arrivals = _growth(now.arrivals, state.counts.get(name, NO_COUNTS).arrivals)
        popularity = before.requests_per_s * kept + arrivals * per_arrival
        if popularity < MIN_POPULARITY_PER_S:
            popularity = 0.0
        if name in counts or popularity:
            in_flight = _num_open(now)
            busy = max(in_flight, before.busy * busy_kept)
            last_s = state.at_s if arrivals else before.last_request_s
            demand[name] = AdapterDemand(popularity, in_flight, busy, last_s)
    return DemandState(now_s, dict(counts), demand)


def _num_open(counts: AdapterCounts) -> int:
    return counts.in_flight + counts.waiting


def _growth(now: int, past: int) -> int:
    return now - past if now >= past else now
