"""The latency objectives of a service."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Objectives:
    """The latencies that a request must meet, and the share of all requests that must meet them."""

    ttft_s: float
    tpot_s: float
    attainment: float = 0.99
