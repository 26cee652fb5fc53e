"""Who gets how much of the traffic."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.pick import Side


@dataclass(frozen=True, slots=True)
class Share:
    """weight: in percent, more than 0."""

    side: Side
    weight: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Of this share of the requests each of the sides gets a copy, whose answer is dropped."""

    sides: tuple[Side, ...]
    share: float


def split(whole: int, by: Mapping[Side, int]) -> tuple[Share, ...]:
    """`whole` percent in proportion to the numbers of `by`; nothing for those with 0.

    Every side with a number gets at least 1 where there is enough. Raises ValueError when all are 0.
    """
    weighed = {side: n for side, n in by.items() if n > 0}
    total = sum(weighed.values())
    if not total:
        raise ValueError("nobody to split traffic over")
    weights = {side: whole * n // total for side, n in weighed.items()}
    largest = max(weighed, key=lambda side: (weighed[side], side))
    weights[largest] += whole - sum(weights.values())  # what rounding left
    for side in weights:
        if not weights[side] and weights[largest] > 1:
            weights[side], weights[largest] = 1, weights[largest] - 1
    return tuple(Share(side, weight) for side, weight in weights.items() if weight > 0)
