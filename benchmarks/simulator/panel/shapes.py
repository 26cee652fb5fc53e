"""Arrival rates over time by kind, relative to their mean.

Ramps, steps, bursts and silences begin after `settled_s`, so that a plan can request replicas before them.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import pi, sin
from random import Random

from penstock.sim.workload.arrivals import Points, stages

Shape = Callable[[Random, float, float], Points]


def steady(draw: Random, duration_s: float, settled_s: float) -> Points:
    return [(0.0, 1.0), (duration_s, 1.0)]


def daily(draw: Random, duration_s: float, settled_s: float) -> Points:
    """A day repeated one to three times as a sine wave, from any phase."""
    waves, swing, phase = draw.choice([1, 1, 2, 3]), draw.uniform(0.3, 0.95), draw.random()
    steps = 96 * waves
    angles = [2 * pi * (waves * i / steps + phase) for i in range(steps + 1)]
    return [(i * duration_s / steps, 1 + swing * sin(angle)) for i, angle in enumerate(angles)]


def ramp(draw: Random, duration_s: float, settled_s: float) -> Points:
    """A ramp up, down, or up and down again, to 2 to 12 times its lower level."""
    high = log_uniform(draw, 2, 12)
    begin_s = max(settled_s, draw.uniform(0.1, 0.3) * duration_s)
    end_s = begin_s + draw.uniform(0.2, 0.9) * (duration_s - begin_s)
    match draw.choice(["up", "down", "both"]):
        case "up":
            levels = (1.0, high, high)
        case "down":
            levels = (high, 1.0, 1.0)
        case _:
            levels = (1.0, high, 1.0)
    return [(0.0, levels[0]), (begin_s, levels[0]), (end_s, levels[1]), (duration_s, levels[2])]


def steps(draw: Random, duration_s: float, settled_s: float) -> Points:
    """Stages of equal length with levels up to ten times apart."""
    count = min(draw.randint(3, 8), max(2, int(duration_s / settled_s)))
    return stages([log_uniform(draw, 0.3, 3) for _ in range(count)], duration_s / count)


def short_bursts(draw: Random, duration_s: float, settled_s: float) -> Points:
    """Bursts of 10 to 60 s at 2 to 10 times the rate."""
    return bursts(draw, duration_s, settled_s, (10, 60), (120, 900), (2, 10))


def long_bursts(draw: Random, duration_s: float, settled_s: float) -> Points:
    """Bursts of 2 to 15 minutes at 1.5 to 4 times the rate."""
    return bursts(draw, duration_s, settled_s, (120, 900), (600, 2400), (1.5, 4))


def silences(draw: Random, duration_s: float, settled_s: float) -> Points:
    """Silences of half a minute to 15 minutes in a constant load."""
    return bursts(draw, duration_s, settled_s, (30, 900), (300, 2400), (0, 0))


def bursts(
    draw: Random,
    duration_s: float,
    settled_s: float,
    lengths_s: tuple[float, float],
    gaps_s: tuple[float, float],
    levels: tuple[float, float],
) -> Points:
    """A constant rate with spans of another level. The ranges of length, gap and level are drawn from."""
    points, at_s = [(0.0, 1.0)], settled_s
    gap_s = log_uniform(draw, *gaps_s)
    while True:
        end_s = at_s + log_uniform(draw, *lengths_s)
        if end_s >= duration_s:
            break
        level = log_uniform(draw, *levels) if levels[0] else 0.0
        points += [(at_s, 1.0), (at_s, level), (end_s, level), (end_s, 1.0)]
        at_s = end_s + draw.uniform(0.5, 1.5) * gap_s
    return [*points, (duration_s, 1.0)]


SHAPES: Mapping[str, Shape] = {
    "steady": steady,
    "daily": daily,
    "ramp": ramp,
    "steps": steps,
    "short-bursts": short_bursts,
    "long-bursts": long_bursts,
    "silences": silences,
}


def area(points: Points) -> float:
    """Integral of the rate."""
    return sum((a + b) / 2 * (end_s - begin_s) for (begin_s, a), (end_s, b) in pairwise(points))


def log_uniform(draw: Random, low: float, high: float) -> float:
    return float(low * (high / low) ** draw.random())
