"""Demand for adapters, as gateways count it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdapterCounts:
    """Requests for one version of an adapter. Counters grow from the start of the gateway's process.

    arrivals, work_tokens (prompt and output), misses (no resident copy at arrival), loads (that succeeded),
    load_failures and failed are counters. in_flight (at engines) and waiting (for a copy, or for room on an
    engine that has one) are gauges. load_s: seconds of these loads together, a counter.
    """

    arrivals: int = 0
    work_tokens: int = 0
    misses: int = 0
    loads: int = 0
    load_failures: int = 0
    failed: int = 0
    load_s: float = 0.0
    in_flight: int = 0
    waiting: int = 0
