"""Latest scaling decision of a service, for its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.formats.conditions import find_condition
from penstock.core.scaling.rule import UNATTAINABLE, Decision, TrailEntry, note_of
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """The last scaling decision on a service."""

    desired: int
    reason: str
    reason_code: str
    valid: bool  # whether metrics were available
    at: str  # time of the decision
    trail: tuple[tuple[str, int, str], ...]  # (step, replicas, note) of each step
    # Desired replicas by variant; empty without variants
    by_variant: Mapping[str, int] = field(default_factory=dict)
    # Start-up time of a first replica; None for a service that is never at zero
    startup_s: int | None = None

    @property
    def unattainable(self) -> str | None:
        """The objectives that an idle engine misses, if the rule found any."""
        return note_of(UNATTAINABLE, ((step, note) for step, _, note in self.trail))

    def as_decision(self) -> Decision:
        """The decision that it reports."""
        trail = tuple(TrailEntry(*entry) for entry in self.trail)
        return Decision(
            self.desired, self.reason, self.reason_code, trail, self.valid, self.by_variant
        )

    @classmethod
    def of(cls, status: Object) -> "ScalingReport | None":
        """The report that a status holds, so that a new leader need not write it again."""
        scaling = status.get("scaling")
        if scaling is None:
            return None
        active = find_condition(status, "ScalingActive")
        return cls(
            desired=scaling["desiredReplicas"],
            reason=scaling["message"],
            reason_code=active.get("reason", ""),
            valid=active.get("reason") != "MetricsMissing",
            at=scaling["lastScaleTime"],
            trail=tuple((e["step"], e["replicas"], e["note"]) for e in scaling.get("trail", [])),
            by_variant={v["name"]: v["replicas"] for v in scaling.get("variants", [])},
            startup_s=scaling.get("startupSeconds"),
        )
