"""Attainment of the latency objectives: the fraction of recent requests that met each of them."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import GatewayReading
from penstock.core.spec.objectives import Objectives

WINDOW_S = 3600.0
# Least time between two samples of the window.
SAMPLE_S = 60.0


@dataclass(frozen=True, slots=True)
class AttainmentWindow:
    """Counts of a service over the last hour, from samples of the gateways' cumulative counts.

    samples: (time, reading), oldest first; the first may be older than the window.
    """

    samples: tuple[tuple[float, GatewayReading], ...] = ()

    def updated(self, now_s: float, reading: GatewayReading) -> "AttainmentWindow":
        """Add a reading; it replaces the last sample if that is younger than SAMPLE_S."""
        samples = self.samples
        if samples and reading.arrivals < samples[-1][1].arrivals:
            samples = ()  # the counts restarted
        if len(samples) > 1 and now_s - samples[-2][0] < SAMPLE_S:
            samples = samples[:-1]
        first = max(0, bisect_left(samples, now_s - WINDOW_S, key=lambda sample: sample[0]) - 1)
        return AttainmentWindow((*samples[first:], (now_s, reading)))

    def attainment(self, objectives: Objectives) -> Mapping[str, float]:
        """The fraction of requests that met each objective that is set; none without requests.

        Requests that were shed or failed met none. Those that met TPOT are interpolated in the histogram.
        """
        if len(self.samples) < 2:
            return {}
        old, new = self.samples[0][1], self.samples[-1][1]
        lost = new.shed - old.shed + new.failed - old.failed
        found: dict[str, float] = {}
        ended = new.ended - old.ended
        if objectives.has_ttft and ended + lost:
            found["ttft"] = (ended - (new.late - old.late)) / (ended + lost)
        if objectives.has_tpot:
            gaps = new.tpot_s.increase_over(old.tpot_s)
            if gaps.count + lost:
                found["tpot"] = num_within(gaps, objectives.tpot_s) / (gaps.count + lost)
        return found


def num_within(histogram: Histogram, bound: float) -> float:
    """Number of observations up to a bound, interpolated within its bucket."""
    index = bisect_left(histogram.bounds, bound)
    below = sum(histogram.counts[:index])
    if index == len(histogram.bounds):
        return float(below)
    low = histogram.bounds[index - 1] if index else 0.0
    high = histogram.bounds[index]
    return below + histogram.counts[index] * (bound - low) / (high - low)


def budget_left(attainment: float, target: float) -> float:
    """Fraction of the error budget that is left: 1 without a miss, 0 at the target, below 0 beyond it."""
    allowed = 1 - target
    if allowed <= 0:
        return 1.0 if attainment >= 1 else 0.0
    return 1 - (1 - attainment) / allowed
