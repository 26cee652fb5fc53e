"""Scenario of simulated canaries: traffic, distribution of latencies, effect of the new revision."""

from dataclasses import dataclass, fields
from typing import Literal

# lognormal: independent requests. heavy: the same with the tails of Student's t with 4 degrees of freedom.
# queue: each pod is a queue under a load that varies in time, so neighboring requests are correlated.
Latency = Literal["lognormal", "heavy", "queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of the new revision. ttft, tpot, output: factors.

    service: factor of the service time in a queue, so that waiting grows as well. errors: added to the
    error share.
    """

    ttft: float = 1.0
    tpot: float = 1.0
    service: float = 1.0
    errors: float = 0.0
    output: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "Effect":
        """Parse `ttft=1.2,errors=0.02`; "" is no effect. Raises ValueError."""
        names = [each.name for each in fields(cls)]
        values: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            name, found, value = part.partition("=")
            if not found or name not in names:
                raise ValueError(f"{part!r} is not one of {'=, '.join(names)}= a number")
            values[name] = float(value)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Scenario of simulated canaries. Rates in requests/s.

    *_sigma: standard deviation of log latency (queue: of log service time).
    """

    canary_rate: float
    control_rate: float
    hours: float = 1.0
    latency: Latency = "lognormal"
    effect: Effect = Effect()
    ttft_sigma: float = 0.8
    tpot_sigma: float = 0.25
    error_share: float = 0.001
    length_share: float = 0.0  # share of the variance of log TTFT that prompt length explains
    warm_up_s: float = 0.0  # time to fill the canary's prefix cache
    history_hours: float = 1.0  # hours of stable's error counts before the canary
    utilization: float = 0.3
    grows: bool = False  # whether both rates, given for the start, grow with the judge's weight
    # Whether answers are streamed; else only the times of whole ones are known
    streams: bool = True
