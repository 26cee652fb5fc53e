"""State of a LoraAdapter on the engines that serve it, from which its conditions are computed."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.adapters.fetched import FetchedVersion
from penstock.core.adapters.pool import PoolStep

InstanceState = Literal["Pending", "Loading", "Loaded", "Evicted", "Failed"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an adapter is not accepted, or why its load failed: one word, and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LoadError(Cause):
    """Failure of the last load. is_final: whether the adapter is to blame, and not the engine."""

    is_final: bool = True


@dataclass(frozen=True, slots=True)
class FetchStep(Cause):
    """Why the spec's version is not fetched yet. is_final: it fails until a person changes something."""

    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """An adapter on one pod. revision: of the copy, if it is another version than the spec's."""

    pod: str
    state: InstanceState
    message: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class AdapterState:
    """State of an adapter on the engines that serve it."""

    refusal: Cause | None = None  # why it is not accepted
    num_engines: int = 0  # ready engines that may serve it
    wanted: int | None = None  # copies by the last placement; None before the first
    has_slot: bool = True  # whether engines have or get memory for all wanted copies
    # Whether every slot has a pinned copy, so that requests cannot load it either
    is_full: bool = False
    instances: tuple[Instance, ...] = ()  # by pod
    failure: LoadError | None = None  # of the last load
    # rank, size_bytes: of a copy in memory; None while there is none
    rank: int | None = None
    size_bytes: int | None = None
    pool: PoolStep | None = None  # the adapter's dedicated pool, if it ever had one
    # Why its model name alone leads to another namespace; empty if it does not
    name_conflict: str = ""
    has_candidate_slot: bool = True  # the same for the version that is rolled out
    # ScaledToZero or Waking if it has no engine as its service was idle; else empty
    at_zero: str = ""
    fetch: FetchStep | None = None  # of the spec's version; None if it was fetched, or is mounted
    # Versions that were fetched; None: as the status records them
    fetched: tuple[FetchedVersion, ...] | None = None
    can_answer: bool = False  # whether a version gets the traffic, and an engine has read it

    @property
    def loaded(self) -> int:
        """Copies of the present version in memory."""
        return sum(each.state == "Loaded" and not each.revision for each in self.instances)
