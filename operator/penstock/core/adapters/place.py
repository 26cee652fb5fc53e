"""Plans which adapters to load on the engine pods of a service, and which to unload.

    copies of versions that no LoraAdapter has: unload
    copies needed by each adapter: its minimum, and by its requests in flight
      -> adapters that lack copies, minimums first, then by priority and popularity
      -> a pod with a free slot, or with an idle copy of a much less popular adapter
      -> the least busy of these pods

It changes nothing on pods that are draining, and unloads no copy that has requests. A copy above what is
needed stays until its slot is wanted. Adapters with rare requests are not loaded here: their next request
loads them (`route_adapter`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import NO_DEMAND, AdapterDemand
from penstock.core.adapters.place_slots import Pods
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.retention import (
    Claim,
    by_engine_name,
    claim,
    is_own_name,
    min_copies,
)

# Share of a pod's fair part of all requests in flight that one copy may take before its adapter gets
# another. The rest leaves room for the other adapters there.
COPY_SHARE = 0.75
# Share of all requests in flight from which an adapter gets a copy on every pod, with a request for each:
# on fewer pods, so much work cannot be spread evenly beside the other adapters.
ALL_SHARE = 1 / 3
# A copy replaces one of another adapter only if that is this many times as popular: with less, the noise
# of the estimates would move copies.
MIN_GAIN = 2.0
# Requests per second above which an adapter that lost its last copy is loaded without a request. Loads
# ahead of rarer requests are often evicted before they are used.
MIN_PRELOAD_PER_S = 0.2


@dataclass(frozen=True, slots=True)
class WantedCopies:
    """Copies of an adapter after the plan. is_met: whether it has or gets as many as it needs."""

    copies: int
    is_met: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Changes of copies, as (name in engines, pod). Unload first, then load in this order.

    adapters: by name in engines.
    """

    loads: tuple[tuple[str, str], ...] = ()
    unloads: tuple[tuple[str, str], ...] = ()
    adapters: Mapping[str, WantedCopies] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """Copies that an adapter needs now, and without demand. most: more are unloaded; None: no bound."""

    minimum: int
    copies: int
    most: int | None
    reason: str


def place(
    adapters: Sequence[AdapterVersion],
    replicas: Sequence[AdapterReplica],
    demand: Mapping[str, AdapterDemand],
    blocked: Collection[str] = (),
    refused: Collection[tuple[str, str]] = (),
) -> PlacementPlan:
    """Plan the next changes. demand: by name in engines.

    blocked: names that must not be loaded now. refused: the same for single pods, as (name, pod).
    """
    versions = by_engine_name(adapters)
    pods = Pods(replicas, versions, demand, refused)
    for name, pod in list(_unwanted(replicas, versions)):
        pods.unload(name, pod)
    needs = _needs(versions, pods.num_pods, demand)
    for name, copies in list(pods.num_copies.items()):
        most = needs[name].most if name in needs else None
        if most is not None and copies > most:
            pods.unload_idle(name, copies - most)
    for name, copies, limit in _missing(needs, versions, pods, demand, blocked):
        while pods.num_copies[name] < copies and pods.load(name, limit):
            pass
    failed = {*blocked, *(name for name, _ in refused)}
    wanted = {
        name: _wanted(need, pods.num_copies[name], name in failed) for name, need in needs.items()
    }
    return PlacementPlan(tuple(pods.loads), tuple(pods.unloads), wanted)


def _unwanted(
    replicas: Sequence[AdapterReplica], versions: Mapping[str, AdapterVersion]
) -> Iterator[tuple[str, str]]:
    """Idle copies of versions that no LoraAdapter has, and those that an engine moved to its disk."""
    for replica in replicas:
        for name, copy in replica.copies.items():
            if copy.requests > 0 or copy.state == "Loading" or not is_own_name(name):
                continue
            if name not in versions or copy.state == "Evicted":
                yield name, replica.pod


def _needs(
    versions: Mapping[str, AdapterVersion], num_pods: int, demand: Mapping[str, AdapterDemand]
) -> dict[str, Need]:
    in_flight = sum(estimate.in_flight for estimate in demand.values())
    busy_per_copy = max(1.0, COPY_SHARE * in_flight / max(1, num_pods))
    busy_for_all = max(num_pods, ALL_SHARE * in_flight)
    needs = {}
    for name, version in versions.items():
        busy = demand.get(name, NO_DEMAND).busy
        by_busy = num_pods if busy >= busy_for_all else ceil(busy / busy_per_copy)
        needs[name] = _need(version, by_busy, num_pods)
    return needs


def _need(version: AdapterVersion, by_busy: int, num_pods: int) -> Need:
    """by_busy: copies that the requests in flight need."""
    placement = version.placement
    if placement.policy != "OnDemand":
        fixed = None if placement.policy == "All" else placement.min_copies
        return _fixed_need(fixed, min_copies(version, num_pods))
    most = num_pods if placement.max_copies is None else min(placement.max_copies, num_pods)
    minimum = min(placement.min_copies, num_pods)
    copies = max(minimum, min(most, by_busy))
    return _demand_need(minimum, copies, placement.max_copies, placement.min_copies)


@cache
def _fixed_need(fixed: int | None, copies: int) -> Need:
    """Need of a placement without demand. fixed: number of copies in the spec; None: one on every pod."""
    reason = (
        "a copy on every pod"
        if fixed is None
        else f"a fixed number of {_describe_number(fixed, copies)}"
    )
    return Need(copies, copies, copies, reason)


@cache
def _demand_need(minimum: int, copies: int, most: int | None, wanted_minimum: int) -> Need:
    """Need of a placement by demand. wanted_minimum: that of the spec, which may exceed the pods."""
    if copies > max(1, minimum):
        reason = f"its recent requests need {copies} copies"
    else:
        reason = (
            f"a minimum of {_describe_number(wanted_minimum, minimum)}" if minimum else "on demand"
        )
    return Need(minimum, copies, most, reason)


def _describe_number(wanted: int, possible: int) -> str:
    """The number of copies in the spec, and the possible number if there are too few pods."""
    return str(wanted) if wanted == possible else f"{wanted}; {possible} now, one for each pod"


def _missing(
    needs: Mapping[str, Need],
    versions: Mapping[str, AdapterVersion],
    pods: Pods,
    demand: Mapping[str, AdapterDemand],
    blocked: Collection[str],
) -> Iterator[tuple[str, int, Claim | None]]:
    """(name, copies, limit) of adapters that lack copies, the strongest claim first.

    Copies with a claim below the limit may be evicted; None: all that may be evicted at all. Of equal
    minimums the larger one goes first, so that they fit if they can.
    """
    minimums: list[tuple[int, int, str]] = []
    by_claim: list[tuple[Claim, str, int]] = []
    for name, need in needs.items():
        has = pods.num_copies.get(name, 0)
        useful = need.copies if need.most == 0 else max(1, need.copies)
        if has >= useful or name in blocked:
            continue
        if has < need.minimum:
            minimums.append((-versions[name].placement.priority, -need.minimum, name))
        estimate = demand.get(name, NO_DEMAND)
        if need.copies > max(1, need.minimum) or estimate.requests_per_s >= MIN_PRELOAD_PER_S:
            ask = claim(versions[name], estimate, has + 1)
            by_claim.append((ask, name, useful))
    for _, less, name in sorted(minimums):
        yield name, -less, None
    for (priority, value), name, copies in sorted(by_claim, reverse=True):
        yield name, copies, (priority, value / MIN_GAIN)


def _wanted(need: Need, has: int, is_blocked: bool) -> WantedCopies:
    if has <= need.copies:
        return _met(has, need.reason) if has == need.copies else _unmet(need, has, is_blocked)
    return _met(has, f"{need.reason}; kept while no other adapter needs the slot")


@cache
def _met(copies: int, reason: str) -> WantedCopies:
    return WantedCopies(copies, True, reason)


@cache
def _unmet(need: Need, has: int, is_blocked: bool) -> WantedCopies:
    if need.copies == 1 and not need.minimum:
        return WantedCopies(has, True, "on demand; its next request loads it")
    why = (
        "its last load failed" if is_blocked else "there is no slot for more, or loads are running"
    )
    return WantedCopies(need.copies, False, f"{need.reason}; {has} now: {why}")
