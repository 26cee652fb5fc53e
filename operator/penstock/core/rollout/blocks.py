"""Builds one block of canary evidence from the gateways' counts per engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from penstock.core.canary.arm import NO_REQUESTS, Arm
from penstock.core.canary.evidence import Block, Faults


@dataclass(frozen=True, slots=True)
class ComparedArms:
    """Arms of the canary and of its control: engine pods as "namespace/name", or versions of an adapter."""

    canary: frozenset[str]
    control: frozenset[str]


def build_block(
    length_s: float,
    before: Mapping[str, Arm],
    after: Mapping[str, Arm],
    sides: ComparedArms,
    faults: Faults,
) -> Block:
    """The block between two readings of a service's counts by engine pod, `length_s` apart.

    A pod that is missing in `before` did all of its work within the block. A pod that is missing in
    `after` counts for neither side, because its work since `before` is unknown.
    """

    def side(pods: frozenset[str]) -> Arm:
        gained = (after[pod].increase_over(before.get(pod)) for pod in sorted(pods) if pod in after)
        return reduce(Arm.plus, gained, NO_REQUESTS)

    return Block(
        length_s=length_s, canary=side(sides.canary), control=side(sides.control), faults=faults
    )
