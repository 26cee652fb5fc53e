"""Sliding window over timed samples, oldest first."""

from typing import NamedTuple, TypeAlias


class Sample(NamedTuple):
    """Value with its time."""

    at_s: float
    value: float


Samples: TypeAlias = tuple[Sample, ...]


def added(samples: Samples, at_s: float, value: float, window_s: float) -> Samples:
    """Add a sample and drop those older than the window."""
    return (*(s for s in samples if s.at_s > at_s - window_s), Sample(at_s, value))


def mean(samples: Samples, now_s: float, window_s: float) -> float | None:
    """Mean of the samples in the window; None without samples."""
    values = [s.value for s in samples if s.at_s > now_s - window_s]
    return sum(values) / len(values) if values else None
