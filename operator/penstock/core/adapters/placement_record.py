"""The record of a placement: why copies of adapters are where they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.adapters.demand import AdapterCounts, AdapterDemand
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.formats.json_text import parse_json
from penstock.core.formats.serialization import deserialize

# Field of replicas in the records of earlier operators, in which it was always false.
FORMER_FIELD = "is_draining"


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """A version of an adapter after a placement."""

    name: str  # of the LoraAdapter
    engine_name: str
    wanted: int  # copies that the placement wants
    has_copies: bool  # whether engines have or get the wanted copies
    reason: str  # why the placement wants this number, as a sentence
    counts: AdapterCounts  # of all gateways
    demand: AdapterDemand
    # Message of the last failed load, by pod
    errors: Mapping[str, str] = field(default_factory=dict)
    retry_in_s: float = 0.0  # time until the next load after a failure; 0 if there was none


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """The last placement of the adapters of a service, "namespace/name". Field names are the wire format."""

    service: str
    at_s: float  # Unix time, as all times of the demand
    # Engines that take adapters, with the copies that they list or that were sent to them
    replicas: tuple[AdapterReplica, ...]
    adapters: tuple[AdapterRecord, ...]
    # loads, unloads: (name in engines, pod) that the placement started
    loads: tuple[tuple[str, str], ...] = ()
    unloads: tuple[tuple[str, str], ...] = ()
    # num_loads, num_failed_loads, num_unloads: since this operator leads
    num_loads: int = 0
    num_failed_loads: int = 0
    num_unloads: int = 0


def read_placement(text: str | bytes) -> PlacementRecord:
    """Read the record that an operator serves, also one of an earlier version. Raises ValueError."""
    record = parse_json(text)
    replicas = record.get("replicas") if isinstance(record, dict) else None
    for replica in replicas if isinstance(replicas, list) else ():
        if isinstance(replica, dict):
            replica.pop(FORMER_FIELD, None)
    return deserialize(PlacementRecord, record)
