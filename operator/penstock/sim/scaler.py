"""Control loop of one rule: scrape, decide, scale the fleet, record."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.scaling.idle import GatewayDemand, IdleInputs, IdleRule, IdleState, SilentGateway
from penstock.core.scaling.rule import Bounds, Decision, Rule
from penstock.core.scaling.signals import GatewayReading, Observation
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


# Time from a request at a service at zero to the decision that wakes it: the gateway answers the operator's
# long poll, and the operator reads the gateway's requests.
WAKE_DELAY_S = 0.1


@dataclass(slots=True)
class Scaler:
    """Control loop of one service."""

    rule: Rule[Any]
    objectives: Objectives
    bounds: Bounds  # bounds on replicas, which change with the quota
    clock: Clock
    metrics: Metrics
    fleet: Fleet
    idle: IdleRule | None = None  # rule of scale to zero; None if `rule` decides about zero
    records: list[Record] = field(default_factory=list)  # all decisions
    ask: Callable[[int], None] = field(init=False)  # sets the desired replicas
    _state: Any = None
    _idle_state: IdleState = field(default_factory=IdleState)
    _is_waking: bool = False

    def __post_init__(self) -> None:
        self.ask = self.fleet.scale

    def begin(self) -> None:
        self._state = self.rule.initial()
        self._plan(self.clock.now + self.rule.period_s)

    def _plan(self, at_s: float) -> None:
        self.metrics.schedule_scrape(at_s)
        self.clock.schedule_at(at_s, self._decide)

    def note_arrival(self) -> None:
        """Decide at once if a request came to a service at zero."""
        if self.idle is not None and not self.fleet.desired and not self._is_waking:
            self._is_waking = True
            self.metrics.schedule_scrape_at(self.clock.now + WAKE_DELAY_S)
            self.clock.schedule_at(self.clock.now + WAKE_DELAY_S, self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        self._decide_once()

    def _decide(self) -> None:
        self._decide_once()
        self._plan(self.clock.now + self.rule.period_s)

    def _decide_once(self) -> None:
        seen = self.metrics.observation()
        bounds = self._bounds(seen)
        decision, self._state = self.rule.decide(self.objectives, bounds, seen, self._state)
        self.records.append(Record(self.clock.now, self.fleet.desired, decision))
        if decision.by_variant:
            self.fleet.scale_variants(decision.by_variant)
        elif bounds.idle is not None and bounds.idle.is_zero:
            self.ask(0)
        else:
            self.ask(bounds.clip(decision.desired))

    def _bounds(self, seen: Observation) -> Bounds:
        """The bounds with the decision about zero."""
        if self.idle is None:
            return self.bounds
        reading = seen.gateway
        demand: GatewayDemand | SilentGateway = SilentGateway()
        if isinstance(reading, GatewayReading):
            demand = GatewayDemand(0.0, reading.arrivals, reading.queued + reading.in_flight)
        inputs = IdleInputs(seen, {"gateway": demand})
        decision, self._idle_state = self.idle.decide(inputs, self._idle_state)
        return replace(self.bounds, min_replicas=max(1, self.bounds.min_replicas), idle=decision)
