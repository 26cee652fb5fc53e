"""When requests come: a rate over time, and how unevenly.

Gaps of a renewal process of mean one are laid out in operational time, the integral of the rate; its
inverse says when. With gaps of variation 1 that is the Poisson process; above 1, Gamma bursts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import cos, pi, sqrt
from random import Random

# (second, requests/s): linear between points; two points of one second are a jump.
Points = Sequence[tuple[float, float]]


def times(points: Points, cv: float, random: Random) -> Iterator[float]:
    """From the first point to the last. cv: coefficient of variation of the gaps."""
    shape = 1 / (cv * cv)
    due = random.gammavariate(shape, 1 / shape) * random.random()  # begins within a gap
    passed = 0.0
    for (begin_s, begin), (end_s, end) in pairwise(points):
        area = (begin + end) / 2 * (end_s - begin_s)
        while due <= passed + area and area > 0:
            yield begin_s + _after(due - passed, begin, (end - begin) / (end_s - begin_s))
            due += random.gammavariate(shape, 1 / shape)
        passed += area


def stages(rates: Sequence[float], stage_s: float) -> list[tuple[float, float]]:
    """Each rate for so long."""
    return [
        point
        for index, rate in enumerate(rates)
        for point in ((index * stage_s, rate), ((index + 1) * stage_s, rate))
    ]


def diurnal(
    mean: float, swing: float, period_s: float, duration_s: float
) -> list[tuple[float, float]]:
    """A sine from its low: mean·(1 - swing) to mean·(1 + swing) and back in each period."""
    step_s = period_s / 96
    seconds = [i * step_s for i in range(int(duration_s / step_s))] + [duration_s]
    return [(s, mean * (1 - swing * cos(2 * pi * s / period_s))) for s in seconds]


def _after(area: float, rate: float, slope: float) -> float:
    """Seconds until the integral of rate + slope·t is `area`."""
    return 2 * area / (rate + sqrt(max(0.0, rate * rate + 2 * slope * area)))
