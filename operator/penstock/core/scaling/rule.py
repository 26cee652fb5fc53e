"""What a scaling rule is: one pure function from what is seen to a number, with its reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import ScalingSpec

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Bounds:
    """max_replicas may shrink under a quota; a rule never answers outside of them."""

    min_replicas: int
    max_replicas: int

    @classmethod
    def of(cls, scaling: ScalingSpec) -> "Bounds":
        return cls(scaling.min_replicas, scaling.max_replicas)

    def clip(self, replicas: int) -> int:
        return max(self.min_replicas, min(self.max_replicas, replicas))


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """replicas: the number after this step. note: the numbers it used."""

    step: str
    replicas: int
    note: str


@dataclass(frozen=True, slots=True)
class Decision:
    """reason: one sentence. code: a CamelCase word for conditions and counters.

    valid: False when the number is held for want of data. by_variant: replicas of each variant, by a
    rule that chooses among them.
    """

    desired: int
    reason: str
    code: str
    trail: tuple[TrailEntry, ...] = ()
    valid: bool = True
    by_variant: Mapping[str, int] = field(default_factory=dict)


class Rule(Protocol[StateT]):
    """One published law with its knobs, or ours. A frozen dataclass whose fields are the knobs.

    period_s: how often it looks. State is immutable and says all that it remembers.
    """

    @property
    def period_s(self) -> float: ...

    def initial(self) -> StateT: ...

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: StateT
    ) -> tuple[Decision, StateT]:
        """At seen.now_s."""
        ...
