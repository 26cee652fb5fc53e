"""What gateways count of each engine -> one block of evidence for the judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from penstock.core.canary.evidence import NO_REQUESTS, Arm, Block, Faults


@dataclass(frozen=True, slots=True)
class Sides:
    """Engine pods, "namespace/name"."""

    canary: frozenset[str]
    control: frozenset[str]


def block_of(
    length_s: float,
    before: Mapping[str, Arm],
    after: Mapping[str, Arm],
    sides: Sides,
    faults: Faults,
) -> Block:
    """before, after: `Gateways.arms` of the service at two looks, `length_s` apart.

    A pod that was not there before did all of its work in between. What one that has gone did since
    the first look is not known, and counts for neither side.
    """

    def side(pods: frozenset[str]) -> Arm:
        gained = (after[pod].since(before.get(pod)) for pod in sorted(pods) if pod in after)
        return reduce(Arm.plus, gained, NO_REQUESTS)

    return Block(
        length_s=length_s, canary=side(sides.canary), control=side(sides.control), faults=faults
    )
