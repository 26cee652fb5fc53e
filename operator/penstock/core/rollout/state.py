"""Where a rollout stands: all that a planner needs to go on, and nothing it could read elsewhere."""

from dataclasses import dataclass

from penstock.core.rollout.phases import Phase, Strategy
from penstock.core.service import Object
from penstock.core.timestamps import parse_timestamp, timestamp

CALM: tuple[Phase, ...] = ("Stable", "Rejected")


@dataclass(frozen=True, slots=True)
class Rejection:
    revision: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class RolloutState:
    """strategy: of the rollout under way, or the last. since_s: when the phase began; reason: why.

    stable: serves, or served until now. revision: is rolled out; None while calm. replicas: of the
    service when it began. weight: what the canary has earned, in percent. command: the last that was
    read. rejected: not tried again until the spec asks for another.
    """

    strategy: Strategy
    phase: Phase
    since_s: float
    reason: str
    stable: str | None
    revision: str | None
    replicas: int
    weight: int = 0
    command: str = ""
    rejected: Rejection | None = None

    @property
    def is_calm(self) -> bool:
        return self.phase in CALM

    @classmethod
    def of(cls, status: Object, now_s: float) -> "RolloutState | None":
        """What a status says; None of a service that has none yet."""
        stable, said = status.get("stableRevision"), status.get("rollout")
        if said is None:
            if stable is None:
                return None
            return cls("Rolling", "Stable", now_s, "it serves", stable, None, 1)
        rejected = said.get("rejected")
        return cls(
            strategy=said["strategy"],
            phase=said["phase"],
            since_s=parse_timestamp(said["since"]),
            reason=said["reason"],
            stable=stable,
            revision=said.get("revision"),
            replicas=said["replicas"],
            weight=said.get("weight", 0),
            command=said.get("command", ""),
            rejected=Rejection(**rejected) if rejected else None,
        )

    def as_object(self) -> Object:
        """For the status; `stable` has a field of its own there. None: to be removed."""
        rejected = self.rejected
        return {
            "strategy": self.strategy,
            "phase": self.phase,
            "since": timestamp(self.since_s),
            "reason": self.reason[:1000],
            "revision": self.revision,
            "replicas": self.replicas,
            "weight": self.weight,
            "command": self.command,
            "rejected": rejected
            and {"revision": rejected.revision, "reason": rejected.reason, "at": rejected.at},
        }
