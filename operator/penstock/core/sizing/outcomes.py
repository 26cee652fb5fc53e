"""What became of requests: how many of them were late, as gateways measured it."""

from dataclasses import dataclass

from penstock.core.signals import GatewayReading, Missing


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of requests whose first token came, or that were shed. late: these, and whose token came too late.
    waiting: who may be late for another reason than too few replicas, as there were none."""

    requests: float = 0.0
    late: float = 0.0
    waiting: float = 0.0

    @classmethod
    def between(
        cls, old: GatewayReading | None, new: GatewayReading | Missing | None, ttft_s: float
    ) -> "Outcomes":
        """ttft_s: whose first token came later is late. waiting: all that have not ended.

        None of all where a gateway cannot be seen.
        """
        if old is None or not isinstance(new, GatewayReading):
            return cls()
        shed = new.shed - old.shed if new.shed >= old.shed else new.shed
        began = new.ttft_s.since(old.ttft_s)
        waiting = new.queued + new.in_flight
        return cls(began.count + shed, began.above(ttft_s) + shed, waiting)

    def after(self, faded: float, more: "Outcomes") -> "Outcomes":
        """faded: what is left of what was seen before. The first that are late are those who waited."""
        excused = min(self.waiting, more.late)
        return Outcomes(
            self.requests * faded + more.requests - excused,
            self.late * faded + more.late - excused,
            self.waiting - excused,
        )
