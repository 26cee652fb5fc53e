"""One kind of canary: how much traffic, what latencies are like, what the canary does worse."""

from dataclasses import dataclass
from typing import Literal

# lognormal: independent requests. heavy: the same with the tails of Student's t of 4 degrees.
# queue: each pod is a queue under a load that swells and ebbs for all, so neighbours are alike.
Latency = Literal["lognormal", "heavy", "queue"]

NAMES = ("ttft", "tpot", "service", "errors", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """ttft, tpot, output: factors. service: of the time that a request holds its queue up, so that the
    queue grows as well. errors: added to the share of requests that fail."""

    ttft: float = 1.0
    tpot: float = 1.0
    service: float = 1.0
    errors: float = 0.0
    output: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "Effect":
        """`ttft=1.2,errors=0.02`; nothing for a canary that is like stable. Raises ValueError."""
        values: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            name, found, value = part.partition("=")
            if not found or name not in NAMES:
                raise ValueError(f"{part!r} is not one of {'=, '.join(NAMES)}= a number")
            values[name] = float(value)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Rates in requests per second. *_sigma: standard deviation of log latency (queue: of log
    service time). length_share: the part of the variance of log TTFT that prompt length explains.

    grows: the rates are those of the start, with control pods at the canary's rate, and both grow
    with the weight that the judge gives.

    warm_up_s: how long the canary's prefix cache takes to fill. history_hours: what is known of
    stable's errors before the canary came.
    """

    canary_rate: float
    control_rate: float
    hours: float = 1.0
    latency: Latency = "lognormal"
    effect: Effect = Effect()
    ttft_sigma: float = 0.8
    tpot_sigma: float = 0.25
    error_share: float = 0.001
    length_share: float = 0.0
    warm_up_s: float = 0.0
    history_hours: float = 1.0
    utilization: float = 0.3
    grows: bool = False
