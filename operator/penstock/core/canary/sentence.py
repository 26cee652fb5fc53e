"""What a test has seen, as a person reads it: metric, size, interval, samples."""

import math

from penstock.core.canary.estimate import Estimate
from penstock.core.canary.tally import TallyReading


def of_shift(metric: str, estimate: Estimate, scale: float, alpha: float) -> str:
    if not estimate.information:
        return f"{metric}: too few requests to compare yet"
    radius = estimate.radius(scale, alpha)
    return (
        f"{metric} of the canary is {_percent(estimate.difference)} against its control "
        f"(between {_percent(estimate.difference - radius)} and "
        f"{_percent(estimate.difference + radius)}) over {estimate.canary_n:,} and "
        f"{estimate.control_n:,} requests"
    )


def of_tally(metric: str, reading: TallyReading) -> str:
    canary, control = reading.canary, reading.control
    return (
        f"{metric}: {canary.events:,} of {canary.requests:,} requests to the canary and "
        f"{control.events:,} of {control.requests:,} to its control, "
        f"{100 * reading.difference:+.2f} points (at most {100 * reading.high:+.2f})"
    )


def _percent(difference: float) -> str:
    return f"{100 * math.expm1(min(difference, 9.0)):+.1f} %"
