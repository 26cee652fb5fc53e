"""Control loop of one rule: scrape, decide, scale the fleet, record."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.core.scaling.rule import Bounds, Decision, Rule
from penstock.core.spec.objectives import Objectives
from penstock.sim.clock import Clock
from penstock.sim.fleet import Fleet
from penstock.sim.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Record:
    """A decision, with the desired replicas before it."""

    at_s: float
    before: int
    decision: Decision


@dataclass(slots=True)
class Scaler:
    """Control loop of one service."""

    rule: Rule[Any]
    objectives: Objectives
    bounds: Bounds  # bounds on replicas, which change with the quota
    clock: Clock
    metrics: Metrics
    fleet: Fleet
    records: list[Record] = field(default_factory=list)  # all decisions
    ask: Callable[[int], None] = field(init=False)  # sets the desired replicas
    _state: Any = None

    def __post_init__(self) -> None:
        self.ask = self.fleet.scale

    def begin(self) -> None:
        self._state = self.rule.initial()
        self._plan(self.clock.now + self.rule.period_s)

    def _plan(self, at_s: float) -> None:
        self.metrics.schedule_scrape(at_s)
        self.clock.schedule_at(at_s, self._decide)

    def _decide(self) -> None:
        seen = self.metrics.observation()
        decision, self._state = self.rule.decide(self.objectives, self.bounds, seen, self._state)
        self.records.append(Record(self.clock.now, self.fleet.desired, decision))
        if decision.by_variant:
            self.fleet.scale_variants(decision.by_variant)
        else:
            self.ask(self.bounds.clip(decision.desired))
        self._plan(self.clock.now + self.rule.period_s)
