"""Adapters, pods and demand for the tests of placement."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.adapters.place import PlacementPlan
from penstock.core.adapters.replica import AdapterReplica, Copy

RESIDENT = Copy("Resident")
BUSY = Copy("Resident", requests=1)


def version(name: str, placement: Placement | None = None) -> AdapterVersion:
    return AdapterVersion(name, f"pvc://adapters/{name}", placement or Placement())


def engine_name(name: str) -> str:
    return version(name).engine_name


IDLE_POD = AdapterReplica(
    pod="p0",
    slots=1,
    copies={},
    load=0.0,
    loads_at_once=1,
    side="",
    draining_copies=frozenset(),
    backing_off_copies=frozenset(),
)


def replica(
    name: str, slots: int, copies: Mapping[str, Copy] | None = None, **more: object
) -> AdapterReplica:
    """A pod with copies by their names in engines."""
    return replace(IDLE_POD, pod=name, slots=slots, copies=copies or {}, **more)  # type: ignore[arg-type]


def pod(
    name: str, slots: int, copies: Mapping[str, Copy] | None = None, **more: object
) -> AdapterReplica:
    """A pod with copies by the names of the LoraAdapters."""
    named = {engine_name(adapter): copy for adapter, copy in (copies or {}).items()}
    return replica(name, slots, named, **more)


def popular(**requests_per_s: float) -> dict[str, AdapterDemand]:
    """Demand by the names of the LoraAdapters, without requests in flight."""
    return {engine_name(n): AdapterDemand(requests_per_s=r) for n, r in requests_per_s.items()}


def in_flight(**requests: int) -> dict[str, AdapterDemand]:
    return {engine_name(n): AdapterDemand(r, r, r) for n, r in requests.items()}


def applied(plan: PlacementPlan, replicas: list[AdapterReplica]) -> list[AdapterReplica]:
    """The pods after the plan: every load is done, and every copy is idle."""
    copies = {r.pod: dict(r.copies) for r in replicas}
    for name, pod_name in plan.unloads:
        del copies[pod_name][name]
    for name, pod_name in plan.loads:
        copies[pod_name][name] = RESIDENT
    return [replace(r, copies=copies[r.pod]) for r in replicas]
