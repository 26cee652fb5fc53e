"""Recorded decisions on services with objectives."""

from dataclasses import dataclass, replace

from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a decision on a service with objectives.

    max_num_batched_tokens: of an engine that does not report it, for rules that need it.
    """

    rule: ObjectivesRule
    objectives: Objectives
    bounds: Bounds
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Recorded decision on a service with objectives, with its inputs. state: before the decision."""

    settings: Settings
    state: ObjectivesState
    seen: Observation
    decision: Decision

    def step(self) -> tuple[Decision, ObjectivesState]:
        """Decide again; also returns the state after the decision."""
        settings = self.settings
        return settings.rule.decide(settings.objectives, settings.bounds, self.seen, self.state)

    def decide_again(self, settings: Settings | None = None) -> Decision:
        """Decide again, with other settings if given."""
        return replace(self, settings=settings or self.settings).step()[0]
