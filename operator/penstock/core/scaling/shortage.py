"""Limits variants whose pods stay unschedulable, so that another variant is used meanwhile.

unschedulable pod -> wait NODE_WAIT_S for the node autoscaler -> limit to the scheduled pods for AVOID_S
  -> try again
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Node autoscalers add a node within a few minutes.
NODE_WAIT_S = 180.0
# Time for which a variant without nodes is limited before it is tried again.
AVOID_S = 900.0


@dataclass(frozen=True, slots=True)
class UnscheduledPods:
    """Unschedulable pods of a variant. since_s: of the first one. placed: pods that have a node."""

    since_s: float
    placed: int


@dataclass(frozen=True, slots=True)
class VariantShortages:
    """Current shortages. most: by variant, the replica limit and the time until which it holds."""

    most: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def updated(self, now_s: float, waiting: Mapping[str, UnscheduledPods]) -> "VariantShortages":
        """Update at now_s. waiting: unschedulable pods by variant. All times on one clock."""
        most = {name: (n, until_s) for name, (n, until_s) in self.most.items() if now_s < until_s}
        for name, pods in waiting.items():
            if now_s - pods.since_s >= NODE_WAIT_S:
                most[name] = (pods.placed, now_s + AVOID_S)
        return VariantShortages(most)

    def limit(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Combine with other replica limits by variant; the smaller one counts."""
        mine = {name: n for name, (n, _) in self.most.items()}
        names = limits.keys() | mine.keys()
        return {name: min(each[name] for each in (limits, mine) if name in each) for name in names}
