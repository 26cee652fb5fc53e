"""The record of a placement: why copies of adapters are where they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.adapters.demand import AdapterCounts, AdapterDemand
from penstock.core.adapters.replica import AdapterReplica


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """A version of an adapter after a placement. name: of the LoraAdapter.

    wanted: copies that the placement wants, and reason: why, as a sentence. has_copies: whether engines have
    or get that many. counts: of all gateways. errors: message of the last failed load, by pod. retry_in_s:
    time until the next load after a failure; 0 if there was none.
    """

    name: str
    engine_name: str
    wanted: int
    has_copies: bool
    reason: str
    counts: AdapterCounts
    demand: AdapterDemand
    errors: Mapping[str, str] = field(default_factory=dict)
    retry_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """The last placement of the adapters of a service, "namespace/name". Field names are the wire format.

    at_s: Unix time, as all times of the demand. replicas: engines that take adapters, with the copies that
    they list or that were sent to them. loads, unloads: (name in engines, pod) that the placement started.
    num_loads, num_failed_loads, num_unloads: since this operator leads.
    """

    service: str
    at_s: float
    replicas: tuple[AdapterReplica, ...]
    adapters: tuple[AdapterRecord, ...]
    loads: tuple[tuple[str, str], ...] = ()
    unloads: tuple[tuple[str, str], ...] = ()
    num_loads: int = 0
    num_failed_loads: int = 0
    num_unloads: int = 0
