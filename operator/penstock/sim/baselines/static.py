"""Baseline: a fixed replica count."""

from dataclasses import dataclass

from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.answer import decided


@dataclass(frozen=True, slots=True)
class Static:
    """Fixed replica count. replicas: 0 means the maximum."""

    replicas: int = 0
    period_s: float = 15.0

    def initial(self) -> None:
        return None

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: None
    ) -> tuple[Decision, None]:
        wanted = self.replicas or bounds.max_replicas
        return decided(bounds, seen, wanted, f"always {wanted}"), None
