"""Variants of which no node has room for more: another one is taken meanwhile.

a pod waits for a node -> nodes may be on their way: PATIENCE_S -> no more than have one, for AVOIDED_S
  -> it is tried again
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Autoscalers of nodes bring one within a few minutes.
PATIENCE_S = 180.0
AVOIDED_S = 900.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pods of one variant. since_s: since when the first of them waits for a node. placed: those that
    have one."""

    since_s: float
    placed: int


@dataclass(frozen=True, slots=True)
class Shortages:
    """most: replicas of a variant, and until when that counts."""

    most: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def after(self, now_s: float, waiting: Mapping[str, Waiting]) -> "Shortages":
        """waiting: by variant, where some pods wait. Times on one clock."""
        most = {name: (n, until_s) for name, (n, until_s) in self.most.items() if now_s < until_s}
        for name, pods in waiting.items():
            if now_s - pods.since_s >= PATIENCE_S:
                most[name] = (pods.placed, now_s + AVOIDED_S)
        return Shortages(most)

    def within(self, limits: Mapping[str, int]) -> dict[str, int]:
        """With other limits of replicas by variant: the smaller one counts."""
        mine = {name: n for name, (n, _) in self.most.items()}
        names = limits.keys() | mine.keys()
        return {name: min(each[name] for each in (limits, mine) if name in each) for name in names}
