"""HPA v2 arithmetic of one metric: replicas from its value and its target.

Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go.
"""

from dataclasses import dataclass
from typing import Protocol

from penstock.sim.baselines import rounding


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposed replicas; None if the metric is unavailable."""

    replicas: int | None
    note: str


class Metric(Protocol):
    """Metric that proposes a replica count."""

    @property
    def name(self) -> str: ...

    def propose(self, current: int, tolerance: float) -> Proposal: ...


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """Metric of type Pods. values: of pods with a value. missing: running pods without one."""

    name: str
    target: float
    values: tuple[float, ...]
    missing: int = 0

    def propose(self, current: int, tolerance: float) -> Proposal:
        """Propose from the mean over pods. Pods without a value count as whatever moves replicas less."""
        if not self.values:
            return Proposal(None, f"{self.name}: no pod has a value")
        ratio = sum(self.values) / len(self.values) / self.target
        note = f"{self.name} at {ratio:.2f} of its target {self.target:g}"
        if not self.missing:
            if _is_tolerated(ratio, tolerance):
                return Proposal(current, note)
            return Proposal(rounding.up(ratio * len(self.values)), note)
        values = [*self.values, *[self.target if ratio < 1 else 0.0] * self.missing]
        newer = sum(values) / len(values) / self.target
        note += f", {newer:.2f} with {self.missing} that have no value"
        wanted = rounding.up(newer * len(values))
        flips = (ratio < 1) != (newer < 1) or (wanted > current if newer < 1 else wanted < current)
        return Proposal(current if _is_tolerated(newer, tolerance) or flips else wanted, note)


@dataclass(frozen=True, slots=True)
class AverageMetric:
    """Metric of type External with AverageValue, as KEDA creates it. total: None if it fails."""

    name: str
    target: float
    total: float | None

    def propose(self, current: int, tolerance: float) -> Proposal:
        """Propose total / target; the tolerance is relative to the current replicas."""
        if self.total is None:
            return Proposal(None, f"{self.name}: no value")
        wanted = rounding.up(self.total / self.target)
        note = f"{self.name} {self.total:.4g} over {self.target:g} a replica"
        if current and _is_tolerated(self.total / (self.target * current), tolerance):
            return Proposal(current, note)
        return Proposal(wanted, note)


def _is_tolerated(ratio: float, tolerance: float) -> bool:
    return abs(1 - ratio) <= tolerance + rounding.GRAIN
