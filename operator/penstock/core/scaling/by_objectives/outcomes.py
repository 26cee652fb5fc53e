"""Late, shed and ended requests, as gateways counted them."""

from dataclasses import dataclass

from penstock.core.scaling.signals import GatewayReading, Missing

# Fraction of the error budget that the rule plans to spend. The rest is for requests that no forecast shows.
PLANNED = 0.5
# A service that spends less of it gets a smaller margin: at most this multiple of its error budget may be
# beyond the replicas.
MOST_LOSS = 3.0
# Late requests that count before any were observed.
PRIOR_LATE = 5.0


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Counts of requests that ended or were shed.

    late: requests with a late first token, and shed ones. waiting: requests that waited while no replica was
    ready, so they may be late for another reason than too few replicas.
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

    def updated(self, faded: float, more: "Outcomes", *, is_served: bool) -> "Outcomes":
        """Add later outcomes. faded: decay of the earlier ones. is_served: whether a replica is ready.

        Requests that wait while no replica is ready are not counted once they are late: fewer or more
        replicas would not have changed that.
        """
        excused = min(self.waiting, more.late)
        return Outcomes(
            self.requests * faded + more.requests - excused,
            self.late * faded + more.late - excused,
            min(self.waiting - excused, more.waiting) if is_served else more.waiting,
        )

    def allowed_loss(self, attainment: float) -> float:
        """Fraction of the load that may be beyond the replicas: more while fewer than planned are late."""
        allowed = 1 - attainment
        planned = PLANNED * (allowed * self.requests + PRIOR_LATE)
        late = max(0.0, self.late) + PLANNED * PRIOR_LATE
        return allowed * min(MOST_LOSS, max(1.0, planned / late))
