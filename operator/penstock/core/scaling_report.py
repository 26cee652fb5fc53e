"""The scaler's last word on a service."""

from dataclasses import dataclass

from penstock.core.service import Object


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """valid: it rested on metrics."""

    desired: int
    reason: str
    reason_code: str
    valid: bool
    at: str
    trail: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, status: Object) -> "ScalingReport | None":
        """The report that a status holds, so that a new leader need not write it again."""
        scaling = status.get("scaling")
        if scaling is None:
            return None
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        active = conditions.get("ScalingActive", {})
        return cls(
            desired=scaling["desired"],
            reason=scaling["reason"],
            reason_code=active.get("reason", ""),
            valid=active.get("reason") != "MetricsMissing",
            at=scaling["at"],
            trail=tuple((e["step"], e["replicas"], e["note"]) for e in scaling.get("trail", [])),
        )
