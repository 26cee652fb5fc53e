"""Shares of the traffic by side, and the mirroring of a rollout."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.pick import Side


@dataclass(frozen=True, slots=True)
class Share:
    """Share of a side. percent: more than 0."""

    side: Side
    percent: int


@dataclass(frozen=True, slots=True)
class RolloutMirror:
    """Mirroring of a rollout: each target gets a copy of `percent` of the requests; responses are dropped."""

    targets: tuple[Side, ...]
    percent: int


def split(whole: int, by: Mapping[Side, int]) -> tuple[Share, ...]:
    """Split `whole` percent in proportion to the numbers of `by`; sides with 0 get nothing.

    Every other side gets at least 1 if `whole` suffices. Raises ValueError if all are 0.
    """
    weighed = {side: n for side, n in by.items() if n > 0}
    total = sum(weighed.values())
    if not total:
        raise ValueError("no side to split traffic over")
    weights = {side: whole * n // total for side, n in weighed.items()}
    largest = max(weighed, key=lambda side: (weighed[side], side))
    weights[largest] += whole - sum(weights.values())  # what rounding left
    for side in weights:
        if not weights[side] and weights[largest] > 1:
            weights[side], weights[largest] = 1, weights[largest] - 1
    return tuple(Share(side, weight) for side, weight in weights.items() if weight > 0)
