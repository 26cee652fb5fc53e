"""What became of requests: how many of them were late, as gateways measured it."""

from dataclasses import dataclass

from penstock.core.scaling.signals import GatewayReading, Missing


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of requests that ended or were shed. late: whose first token came too late, and these.
    waiting: who may be late for another reason than too few replicas, as there were none."""

    requests: float = 0.0
    late: float = 0.0
    waiting: float = 0.0

    @classmethod
    def between(
        cls, old: GatewayReading | None, new: GatewayReading | Missing | None
    ) -> "Outcomes":
        """waiting: all that have not ended. None of all where a gateway cannot be seen, or began anew."""
        if old is None or not isinstance(new, GatewayReading):
            return cls()
        ended, late, shed = new.ended - old.ended, new.late - old.late, new.shed - old.shed
        if min(ended, late, shed) < 0:
            return cls()
        return cls(ended + shed, late + shed, new.queued + new.in_flight)

    def after(self, faded: float, more: "Outcomes") -> "Outcomes":
        """faded: what is left of what was seen before. The first that are late are those who waited."""
        excused = min(self.waiting, more.late)
        return Outcomes(
            self.requests * faded + more.requests - excused,
            self.late * faded + more.late - excused,
            self.waiting - excused,
        )
