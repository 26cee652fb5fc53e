"""Draws arrival times from a rate over time and a coefficient of variation of the gaps.

A renewal process with mean gap 1 runs in operational time, the integral of the rate; the inverse of the
integral gives the arrival times. A coefficient of 1 is a Poisson process, above 1 are Gamma bursts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import cos, pi, sqrt
from random import Random

# (second, requests/s), linear between points. Two points at the same second are a jump.
Points = Sequence[tuple[float, float]]


def times(points: Points, cv: float, random: Random) -> Iterator[float]:
    """Draw arrival times between the first and the last point. cv: coefficient of variation of the gaps."""
    shape = 1 / (cv * cv)
    due = random.gammavariate(shape, 1 / shape) * random.random()  # time 0 falls within a gap
    passed = 0.0
    for (begin_s, begin), (end_s, end) in pairwise(points):
        area = (begin + end) / 2 * (end_s - begin_s)
        while due <= passed + area and area > 0:
            yield begin_s + _time_of_integral(
                due - passed, begin, (end - begin) / (end_s - begin_s)
            )
            due += random.gammavariate(shape, 1 / shape)
        passed += area


def stages(rates: Sequence[float], stage_s: float) -> list[tuple[float, float]]:
    """Piecewise constant rate: each of `rates` for stage_s seconds."""
    return [
        point
        for index, rate in enumerate(rates)
        for point in ((index * stage_s, rate), ((index + 1) * stage_s, rate))
    ]


def diurnal(
    mean: float, swing: float, period_s: float, duration_s: float
) -> list[tuple[float, float]]:
    """Sinusoidal rate that starts at its minimum: mean·(1 ± swing) in each period."""
    step_s = period_s / 96
    seconds = [i * step_s for i in range(int(duration_s / step_s))] + [duration_s]
    return [(s, mean * (1 - swing * cos(2 * pi * s / period_s))) for s in seconds]


def _time_of_integral(area: float, rate: float, slope: float) -> float:
    """Seconds until the integral of rate + slope·t is `area`."""
    return 2 * area / (rate + sqrt(max(0.0, rate * rate + 2 * slope * area)))
