"""Describes test results in English: metric, effect, confidence interval, sample sizes."""

from penstock.core.canary.estimate import Estimate, relative_change
from penstock.core.canary.proportions import ProportionEstimate


def describe_shift(metric: str, estimate: Estimate, scale: float, alpha: float) -> str:
    """A sentence on a latency or length difference. scale, alpha: as in Estimate.radius."""
    if not estimate.information:
        return f"{metric}: too few requests to compare yet"
    radius = estimate.radius(scale, alpha)
    return (
        f"{metric} of the canary is {_percent(estimate.difference)} against its control "
        f"(between {_percent(estimate.difference - radius)} and "
        f"{_percent(estimate.difference + radius)}) over {estimate.canary_n:,} and "
        f"{estimate.control_n:,} requests"
    )


def describe_proportions(metric: str, reading: ProportionEstimate) -> str:
    """A sentence on a difference of two shares of requests."""
    canary, control = reading.canary, reading.control
    return (
        f"{metric}: {canary.events:,} of {canary.requests:,} requests to the canary and "
        f"{control.events:,} of {control.requests:,} to its control, "
        f"{100 * reading.difference:+.2f} points (at most {100 * reading.high:+.2f})"
    )


def _percent(difference: float) -> str:
    return f"{100 * relative_change(difference):+.1f} %"
