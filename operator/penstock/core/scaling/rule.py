"""Interface of a scaling rule: a pure function from observation to decision, with its reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from penstock.core.scaling.idle import IdleDecision
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import ScalingSpec

StateT = TypeVar("StateT")

# Codes of the operator's decisions. Rules that only the simulator runs have others.
DecisionCode = Literal[
    "Steady",
    "ScaleUp",
    "ScaleDown",
    "ScaleDownDelayed",
    "Swap",
    "AtMaximum",
    "Bounded",
    "OverBudget",
    "NoRequests",
    "MetricsMissing",
    "ScaledToZero",
]

# Step of the trail that names the objectives which an idle engine misses.
UNATTAINABLE = "unattainable"

# Steps of the trail about zero. IDLE_UNKNOWN: the last replica is held, as metrics are missing.
IDLE, IDLE_UNKNOWN = "idle", "idle-unknown"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Replica bounds of a decision. A quota may lower max_replicas.

    idle: whether the service is at zero; None for one that never is. With it, min_replicas is at least 1.
    """

    min_replicas: int
    max_replicas: int
    idle: IdleDecision | None = None

    @classmethod
    def of(cls, scaling: ScalingSpec, idle: IdleDecision | None = None) -> "Bounds":
        least = scaling.min_replicas if idle is None else max(1, scaling.min_replicas)
        return cls(least, scaling.max_replicas, idle)

    def clip(self, replicas: int) -> int:
        return max(self.min_replicas, min(self.max_replicas, replicas))


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """Step of a decision. replicas: the number after it. note: the numbers that it used."""

    step: str
    replicas: int
    note: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of a rule. reason: a sentence. code: a CamelCase word for conditions and counters.

    valid: False if the number is held because data is missing. by_variant: replicas by variant, from a
    rule that chooses among variants.
    """

    desired: int
    reason: str
    code: str
    trail: tuple[TrailEntry, ...] = ()
    valid: bool = True
    by_variant: Mapping[str, int] = field(default_factory=dict)

    @property
    def unattainable(self) -> str | None:
        """The objectives that an idle engine misses, if the rule found any."""
        return note_of(UNATTAINABLE, ((entry.step, entry.note) for entry in self.trail))

    @property
    def is_blind(self) -> bool:
        """Whether replicas are held because metrics are missing: all, or the last of an idle service."""
        return not self.valid or any(entry.step == IDLE_UNKNOWN for entry in self.trail)


def note_of(step: str, notes: Iterable[tuple[str, str]]) -> str | None:
    """The note of a step of a trail; None if the trail lacks it. notes: step and note of each entry."""
    return next((note for name, note in notes if name == step), None)


class Rule(Protocol[StateT]):
    """Scaling rule as a frozen dataclass, whose fields are its settings.

    period_s: time between decisions. The state is immutable and complete.
    """

    @property
    def period_s(self) -> float: ...

    def initial(self) -> StateT: ...

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: StateT
    ) -> tuple[Decision, StateT]:
        """Decide at seen.now_s. Returns the decision and the next state."""
        ...
