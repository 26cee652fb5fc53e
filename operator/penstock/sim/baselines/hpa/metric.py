"""HPA v2's arithmetic for one metric: its value against a target, as a number of replicas.

Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go.
"""

from dataclasses import dataclass
from typing import Protocol

from penstock.sim.baselines import rounding


@dataclass(frozen=True, slots=True)
class Proposal:
    """replicas: None when the metric cannot be had."""

    replicas: int | None
    note: str


class Metric(Protocol):
    @property
    def name(self) -> str: ...

    def propose(self, current: int, tolerance: float) -> Proposal: ...


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """type Pods. values: of pods that have one. missing: pods that run and have none.

    unready: pods that do not count yet, but would take their share of what is too much.
    """

    name: str
    target: float
    values: tuple[float, ...]
    missing: int = 0
    unready: int = 0

    def propose(self, current: int, tolerance: float) -> Proposal:
        """From the mean over pods; pods without a value are taken for whatever moves less."""
        if not self.values:
            return Proposal(None, f"{self.name}: no pod has a value")
        ratio = sum(self.values) / len(self.values) / self.target
        note = f"{self.name} at {ratio:.2f} of its target {self.target:g}"
        rebalance = self.unready if ratio > 1 else 0
        if not self.missing and not rebalance:
            if _within(ratio, tolerance):
                return Proposal(current, note)
            return Proposal(rounding.up(ratio * len(self.values)), note)
        filled = [self.target if ratio < 1 else 0.0] * self.missing + [0.0] * rebalance
        values = [*self.values, *filled]
        newer = sum(values) / len(values) / self.target
        note += f", {newer:.2f} with {len(filled)} that have no value"
        wanted = rounding.up(newer * len(values))
        flips = (ratio < 1) != (newer < 1) or (wanted > current if newer < 1 else wanted < current)
        return Proposal(current if _within(newer, tolerance) or flips else wanted, note)


@dataclass(frozen=True, slots=True)
class AverageMetric:
    """type External with AverageValue, which is what KEDA makes. total: None when it fails."""

    name: str
    target: float
    total: float | None

    def propose(self, current: int, tolerance: float) -> Proposal:
        """The total over the target; the tolerance is against the replicas there are."""
        if self.total is None:
            return Proposal(None, f"{self.name}: no value")
        wanted = rounding.up(self.total / self.target)
        note = f"{self.name} {self.total:.4g} over {self.target:g} a replica"
        if current and _within(self.total / (self.target * current), tolerance):
            return Proposal(current, note)
        return Proposal(wanted, note)


def _within(ratio: float, tolerance: float) -> bool:
    return abs(1 - ratio) <= tolerance + rounding.GRAIN
