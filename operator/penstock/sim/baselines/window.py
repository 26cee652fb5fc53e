"""Numbers with a time, oldest first, and what can be asked of the last so many seconds."""

from typing import NamedTuple, TypeAlias


class Sample(NamedTuple):
    at_s: float
    value: float


Samples: TypeAlias = tuple[Sample, ...]


def added(samples: Samples, at_s: float, value: float, window_s: float) -> Samples:
    """With one more, less those that `window_s` has left behind."""
    return (*(s for s in samples if s.at_s > at_s - window_s), Sample(at_s, value))


def mean(samples: Samples, now_s: float, window_s: float) -> float | None:
    """Of those younger than the window; None of none."""
    values = [s.value for s in samples if s.at_s > now_s - window_s]
    return sum(values) / len(values) if values else None
