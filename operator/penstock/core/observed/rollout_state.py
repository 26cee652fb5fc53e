"""Where a rollout stands: all that a planner needs to go on, and nothing it could read elsewhere."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.formats.timestamps import parse_timestamp, timestamp
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import Object

Phase = Literal[
    "Stable",  # one revision has pods and all of the traffic
    "Stopping",  # Recreate: the old pods drain before new ones start
    "Starting",  # pods of the new revision start; no traffic
    "Shadowing",  # Canary: the new revision gets copies of requests; no traffic
    "Waiting",  # BlueGreen: all pods are ready; a person says when to switch
    "Judging",  # Canary: traffic is split, evidence comes in
    "Paused",  # Canary: the split is held, by hand
    "Growing",  # Canary: the new revision gets the pods that all of the traffic needs
    "Replacing",  # Rolling: pods are replaced a few at a time
    "Promoting",  # the new revision has all routes; gateways are being told
    "Draining",  # the old revision's pods finish their streams and go
    "RollingBack",  # the old revision has all routes again; gateways are being told
    "Discarding",  # the new revision's pods finish their streams and go
    "Rejected",  # like Stable, with a revision that is not tried again
]

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
            return cls("Rolling", "Stable", now_s, "it already serves", stable, None, 1)
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
