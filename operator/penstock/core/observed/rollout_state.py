"""The stored state of a rollout: what the planner cannot derive from other objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args

from penstock.core.formats.timestamps import parse_timestamp, timestamp
from penstock.core.observed.rollout_phases import SETTLED_PHASES, Phase
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import Object

# Types of the fields of `status.rollout` and of its `rejected` that the rollout continues from.
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "phaseTransitionTime": str, "message": str, "replicas": int, "revision": (str, NoneType),
    "weightPercent": (int, NoneType), "command": (str, NoneType), "rejected": (dict, NoneType),
}  # fmt: skip
_REJECTED_FIELDS = {"revision": str, "message": str, "rejectionTime": str}


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected revision, with the reason and the time (RFC 3339)."""

    revision: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class RolloutState:
    """State of a rollout."""

    strategy: Strategy  # of the current or the last rollout
    phase: Phase
    since_s: float  # Unix time of the phase's start
    reason: str  # why the phase started
    stable: str | None  # the revision that serves, or served until now
    revision: str | None  # the revision that is rolled out; None if there is none
    replicas: int  # of the service when the rollout started
    weight_percent: int = 0  # the canary's earned share
    command: str = ""  # the last user command read
    rejected: Rejection | None = None  # not retried until the spec asks for another

    @property
    def is_settled(self) -> bool:
        """Whether no rollout is in progress."""
        return self.phase in SETTLED_PHASES

    @property
    def rejection(self) -> Rejection | None:
        """The rejection with which the last rollout ended; None if it ended otherwise, or goes on."""
        return self.rejected if self.phase == "Rejected" else None

    @classmethod
    def of(cls, status: Object, now_s: float) -> "RolloutState | None":
        """Read the state from a status; None for a service that has none yet.

        Of a rollout that has lost fields, only the stable revision counts.
        """
        stable, stored = status.get("stableRevision"), status.get("rollout")
        if stored is None or not is_readable(stored):
            if stable is None:
                return None
            return cls("Rolling", "Stable", now_s, "it already serves", stable, None, 1)
        rejected = stored.get("rejected")
        return cls(
            strategy=stored["strategy"],
            phase=stored["phase"],
            since_s=parse_timestamp(stored["phaseTransitionTime"]),
            reason=stored["message"],
            stable=stable,
            revision=stored.get("revision"),
            replicas=stored["replicas"],
            weight_percent=stored.get("weightPercent") or 0,
            command=stored.get("command") or "",
            rejected=rejected
            and Rejection(rejected["revision"], rejected["message"], rejected["rejectionTime"]),
        )

    def as_object(self) -> Object:
        """The state for `status.rollout`, without `stable`, which has its own field. None removes a field."""
        rejected = self.rejected
        return {
            "strategy": self.strategy,
            "phase": self.phase,
            "phaseTransitionTime": timestamp(self.since_s),
            "message": self.reason[:1000],
            "revision": self.revision,
            "replicas": self.replicas,
            "weightPercent": self.weight_percent,
            "command": self.command,
            "rejected": rejected
            and {
                "revision": rejected.revision,
                "message": rejected.reason,
                "rejectionTime": rejected.at,
            },
        }


def is_readable(rollout: Any) -> bool:
    """Whether a `status.rollout` has all fields that the rollout continues from.

    A newer API server drops renamed fields, and a newer operator may have written another phase.
    """
    return (
        has_types(rollout, _FIELDS)
        and rollout.get("strategy") in get_args(Strategy)
        and rollout.get("phase") in get_args(Phase)
        and _is_timestamp(rollout["phaseTransitionTime"])
        and (rollout.get("rejected") is None or has_types(rollout["rejected"], _REJECTED_FIELDS))
    )


def is_rolling(status: Object) -> bool:
    """Whether a status says that a rollout is in progress."""
    return ((status.get("rollout") or {}).get("phase") or "Stable") not in SETTLED_PHASES


def has_types(value: Any, types: Mapping[str, type | tuple[type, ...]]) -> bool:
    """Whether a value is an object whose fields have these types. NoneType: the field may be missing."""
    return isinstance(value, dict) and all(
        isinstance(value.get(name), expected) for name, expected in types.items()
    )


def _is_timestamp(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return True
