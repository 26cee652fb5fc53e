"""Placement of adapters on the engine pods of a service: what to load and what to unload.

    copies that nobody wants: unload
    copies needed per adapter: its minimum, and by requests in flight
      -> missing copies, minimums first, then by priority and value
      -> a pod with a free slot, or one whose idle copy is worth less
      -> the least busy of these pods

It changes nothing on pods that are draining, and unloads no copy that has requests. A copy above what is
needed stays until its slot is wanted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand_estimate import AdapterDemand
from penstock.core.adapters.place_slots import Pods
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.retention import (
    NO_DEMAND,
    Claim,
    by_engine_name,
    claim,
    is_own_name,
    min_copies,
)

# Share of a pod's fair part of all requests in flight that one copy may take, before its adapter gets
# another. Half a pod leaves room for the other adapters there.
COPY_SHARE = 0.5
# A copy replaces one of another adapter only if it is worth this many times as much: less would move
# copies for the noise of the estimates.
MIN_GAIN = 2.0
# Requests per second above which an adapter is loaded without a request: one in 10 minutes.
MIN_PRELOAD_PER_S = 1 / 600


@dataclass(frozen=True, slots=True)
class WantedCopies:
    """Copies of an adapter after the plan. is_met: whether the pods have or get that many."""

    copies: int
    is_met: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Changes of copies, as (name in engines, pod); unload first. adapters: by name in engines."""

    loads: tuple[tuple[str, str], ...] = ()
    unloads: tuple[tuple[str, str], ...] = ()
    adapters: Mapping[str, WantedCopies] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """Copies that an adapter should have, in order of claim."""

    version: AdapterVersion
    minimum: int
    copies: int
    reason: str


def place(
    adapters: Sequence[AdapterVersion],
    replicas: Sequence[AdapterReplica],
    demand: Mapping[str, AdapterDemand],
    blocked: Collection[str] = (),
) -> PlacementPlan:
    """Plan the next changes. demand: by name in engines. blocked: names whose loads failed just now."""
    versions = by_engine_name(adapters)
    pods = Pods(replicas, versions, demand)
    for name, pod in list(_unwanted(replicas, versions)):
        pods.unload(name, pod)
    needs = _needs(versions, pods, demand)
    _unload_surplus(needs, pods)
    for name, copies, lowest in _missing(needs, pods, demand, blocked):
        while pods.num_copies[name] < copies and pods.load(name, lowest):
            pass
    return PlacementPlan(
        tuple(pods.loads),
        tuple(pods.unloads),
        {name: _wanted(name, need, pods, blocked) for name, need in needs.items()},
    )


def _unwanted(
    replicas: Sequence[AdapterReplica], versions: Mapping[str, AdapterVersion]
) -> Iterator[tuple[str, str]]:
    """Idle copies of versions that no LoraAdapter has, and those that an engine moved to its disk."""
    for replica in replicas:
        if replica.is_draining:
            continue
        for name, copy in replica.copies.items():
            if copy.requests > 0 or copy.state == "Loading" or not is_own_name(name):
                continue
            if name not in versions or copy.state == "Evicted":
                yield name, replica.pod


def _needs(
    versions: Mapping[str, AdapterVersion], pods: Pods, demand: Mapping[str, AdapterDemand]
) -> dict[str, Need]:
    num_pods = pods.num_pods
    total_busy = sum(demand.get(name, NO_DEMAND).busy for name in versions)
    busy_per_copy = max(1.0, COPY_SHARE * total_busy / max(1, num_pods))
    return {
        name: _need(version, demand.get(name, NO_DEMAND), busy_per_copy, num_pods)
        for name, version in versions.items()
    }


def _need(
    version: AdapterVersion, demand: AdapterDemand, busy_per_copy: float, num_pods: int
) -> Need:
    placement = version.placement
    minimum = min_copies(version, num_pods)
    if placement.policy == "All":
        return Need(version, minimum, minimum, f"a copy on every pod ({num_pods})")
    if placement.policy == "Fixed":
        return Need(version, minimum, minimum, f"{placement.min_copies} copies")
    by_busy = ceil(demand.busy / busy_per_copy)
    most = num_pods if placement.max_copies is None else min(placement.max_copies, num_pods)
    copies = max(minimum, min(most, by_busy))
    if copies > minimum:
        reason = f"{demand.busy:.1f} requests in flight, {busy_per_copy:.1f} for a copy"
    elif minimum:
        reason = f"at least {placement.min_copies} copies"
    else:
        reason = "on demand"
    return Need(version, minimum, copies, reason)


def _unload_surplus(needs: Mapping[str, Need], pods: Pods) -> None:
    """Unload idle copies above a fixed number or a maximum."""
    for name, need in needs.items():
        placement = need.version.placement
        most = placement.max_copies if placement.policy == "OnDemand" else need.copies
        if most is not None and pods.num_copies[name] > most:
            pods.unload_idle(name, pods.num_copies[name] - most)


def _missing(
    needs: Mapping[str, Need],
    pods: Pods,
    demand: Mapping[str, AdapterDemand],
    blocked: Collection[str],
) -> Iterator[tuple[str, int, Claim | None]]:
    """(name, copies, claim) of adapters that lack copies, the strongest claim first. None: a minimum."""
    lacking = [
        (name, need)
        for name, need in needs.items()
        if name not in blocked and pods.num_copies[name] < max(1, need.copies)
    ]
    minimums = [(name, need) for name, need in lacking if pods.num_copies[name] < need.minimum]
    for name, need in sorted(
        minimums, key=lambda pair: (-pair[1].version.placement.priority, pair[0])
    ):
        yield name, need.minimum, None
    by_claim = []
    for name, need in lacking:
        wanted = demand.get(name, NO_DEMAND)
        is_hot = need.copies > need.minimum and wanted.busy > 0
        if is_hot or wanted.requests_per_s >= MIN_PRELOAD_PER_S:
            ask = claim(need.version, wanted, pods.num_copies[name] + 1)
            by_claim.append((ask, name, max(1, need.copies)))
    for (priority, value), name, copies in sorted(by_claim, reverse=True):
        yield name, copies, (priority, value / MIN_GAIN)


def _wanted(name: str, need: Need, pods: Pods, blocked: Collection[str]) -> WantedCopies:
    has = pods.num_copies[name]
    if has >= need.copies:
        is_kept = need.version.placement.policy == "OnDemand" and has > need.copies
        reason = f"{need.reason}; kept while its slot is not wanted" if is_kept else need.reason
        return WantedCopies(has, True, reason)
    why = (
        "its last load failed" if name in blocked else "no slot is free or worth less, or loads run"
    )
    return WantedCopies(need.copies, False, f"{need.reason}; {has} now: {why}")
