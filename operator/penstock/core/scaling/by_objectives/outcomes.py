"""Late, shed and ended requests, as gateways counted them."""

from dataclasses import dataclass

from penstock.core.scaling.signals import GatewayReading, Missing


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Requests that ended or were shed.

    late: those with a late first token, and the shed ones. waiting: requests that waited while there was no
    replica, so they may be late for another reason than too few replicas.
    """

    requests: float = 0.0
    late: float = 0.0
    waiting: float = 0.0

    @classmethod
    def between(
        cls, old: GatewayReading | None, new: GatewayReading | Missing | None
    ) -> "Outcomes":
        """Outcomes between two readings; none if a gateway is missing or restarted."""
        if old is None or not isinstance(new, GatewayReading):
            return cls()
        ended, late, shed = new.ended - old.ended, new.late - old.late, new.shed - old.shed
        if min(ended, late, shed) < 0:
            return cls()
        return cls(ended + shed, late + shed, new.queued + new.in_flight)

    def after(self, faded: float, more: "Outcomes") -> "Outcomes":
        """Add later outcomes. faded: decay of the earlier ones. The first late ones are those that waited."""
        excused = min(self.waiting, more.late)
        return Outcomes(
            self.requests * faded + more.requests - excused,
            self.late * faded + more.late - excused,
            self.waiting - excused,
        )
