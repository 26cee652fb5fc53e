"""Choice of a pod for one request of an adapter.

a resident copy: the pods that have one -> a running load: wait for it
  -> load on demand: of the less busy pods one with a free slot, or the copy that is worth least
  -> wait for a load or a slot, bounded; after some seconds the busy copy that is worth least is drained
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.retention import NO_CLAIM, Claim
from penstock.core.adapters.service_copies import EvictionOrder, PodCopies, ServiceCopies

# Longest wait of a request for a copy, in seconds. Below the usual time-outs of clients.
MAX_WAIT_S = 30.0
# Wait of a request after which a busy copy of another adapter is drained, in seconds. Most requests end
# sooner, and a copy under steady load is never idle. Adapters that lack slots take turns that are as long.
DRAIN_AFTER_S = 5.0
# Pods whose load is at most this multiple of the least busy one's are equal for a load on demand: among
# them the slot counts. With less, popular copies are evicted for the sake of balance.
LOAD_SLACK = 2.0


@dataclass(frozen=True, slots=True)
class Send:
    """The adapter is in memory on these pods, of which the caller chooses one."""

    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Load the adapter on this pod, then send the request there. evict: unload this adapter first."""

    pod: str
    evict: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again when a load or a request ends. pod: where the adapter is being loaded; None: nowhere."""

    reason: str
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class DrainCopy:
    """Send no new requests to this adapter on this pod until it is idle, and ask again as after Wait."""

    pod: str
    engine_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request cannot be served. retry_after_s: None if another try would fail as well."""

    reason: str
    retry_after_s: float | None = None


AdapterDecision = Send | Load | Wait | DrainCopy | Refuse


def route_adapter(
    engine_name: str,
    replicas: Sequence[AdapterReplica],
    versions: Mapping[str, AdapterVersion],
    demand: Mapping[str, AdapterDemand],
    waited_s: float = 0.0,
    others: Sequence[AdapterReplica] = (),
    shown_demand: Mapping[str, AdapterDemand] = {},
    counted: ServiceCopies | None = None,
    claimed: Mapping[str, Container[str]] = {},
) -> AdapterDecision:
    """Choose what happens to one request.

    replicas: pods that may take it, such as those of the chosen side. versions: all adapters of the
    service, by name in engines; copies of any other name are never evicted. waited_s: since it arrived.
    others: the service's other pods, whose copies count for the minimums of adapters. shown_demand: as all
    gateways read it, so that they drain the same copy. counted: kept by the caller for the service, so that
    the next choice does not pass over unchanged copies; None: count all. claimed: by pod, names of copies
    that requests need which the engine has not listed.
    """
    draining = {r.pod for r in replicas if engine_name in r.draining_copies}
    decision = _without_load(engine_name, replicas, draining, waited_s)
    if decision is not None:
        return decision
    able = [replica for replica in replicas if replica.pod not in draining]
    others = [*others, *(replica for replica in replicas if replica.pod in draining)]
    counted = counted or ServiceCopies()
    counted.update([*able, *others])
    num_pods = len(able) + len(others)
    load = _load(able, counted, counted.order("load", versions, demand, num_pods), claimed)
    if isinstance(load, Load) or waited_s < DRAIN_AFTER_S:
        return load
    order = counted.order("drain", versions, shown_demand, num_pods)
    return _drain(engine_name, able, counted, order, versions) or load


def _without_load(
    engine_name: str, serving: Sequence[AdapterReplica], draining: set[str], waited_s: float
) -> Send | Wait | Refuse | None:
    """Decide where there is a copy, a load runs, or the request has waited for too long; else None.

    draining: pods whose copy takes no new requests.
    """
    states = {r.pod: r.copies[engine_name].state for r in serving if engine_name in r.copies}
    resident = [p for p, state in states.items() if state == "Resident" and p not in draining]
    if resident:
        return Send(tuple(sorted(resident)))
    if waited_s >= MAX_WAIT_S:
        return Refuse(f"no copy of {engine_name} within {MAX_WAIT_S:g} s", retry_after_s=5.0)
    loading = [pod for pod, state in states.items() if state == "Loading"]
    if loading:
        return Wait(f"{engine_name} is being loaded on {loading[0]}", loading[0])
    return None if serving else Wait("no pod takes requests")


def _load(
    serving: Sequence[AdapterReplica],
    counted: ServiceCopies,
    order: EvictionOrder,
    claimed: Mapping[str, Container[str]],
) -> Load | Wait:
    if not serving:
        return Wait("its copies make room for an adapter that has waited for long")
    pods = counted.pods
    free = [r for r in serving if pods[r.pod].num_loading < r.loads_at_once]
    if not free:
        return Wait("every pod is loading other adapters")
    able = list(_room(free, pods, order, claimed))
    if not able:
        return Wait("every slot holds an adapter with requests or a pinned one")
    least = min(replica.load for replica, _ in able)
    equal = [(r, v) for r, v in able if r.load <= LOAD_SLACK * least]

    def cost(choice: tuple[AdapterReplica, str | None]) -> tuple[bool, Claim, float, int, str]:
        """Free slots first, then the copies that are worth least, then the pods with the least work."""
        replica, victim = choice
        claim = NO_CLAIM if victim is None else order.claims[victim]
        num_loading = pods[replica.pod].num_loading
        return victim is not None, claim, replica.load, num_loading, replica.pod

    replica, victim = min(equal, key=cost)
    if victim is None:
        return Load(replica.pod, None, f"{replica.pod} has a free slot")
    reason = f"{victim} on {replica.pod} has the least demand of the idle copies"
    return Load(replica.pod, victim, reason)


def _room(
    replicas: Sequence[AdapterReplica],
    pods: Mapping[str, PodCopies],
    order: EvictionOrder,
    claimed: Mapping[str, Container[str]],
) -> Iterator[tuple[AdapterReplica, str | None]]:
    """The pods that can take a copy, each with the idle copy to evict; None: it has a free slot."""
    for replica in replicas:
        copies = pods[replica.pod]
        if len(copies.in_slots) < replica.slots:
            yield replica, None
            continue
        busy = claimed.get(replica.pod, ())
        coldest = next((n for n in order.idle(replica.pod, copies) if n not in busy), None)
        if coldest is not None:
            yield replica, coldest


def _drain(
    engine_name: str,
    serving: Sequence[AdapterReplica],
    counted: ServiceCopies,
    order: EvictionOrder,
    versions: Mapping[str, AdapterVersion],
) -> DrainCopy | None:
    """Choose a copy in use that makes room; None if there is none. One that drains already comes first.

    A copy that was drained lately is left out: its requests may not end, and others for its adapter have
    waited.
    """
    priority = _priority(versions, engine_name)
    found: list[tuple[bool, Claim, str, str]] = []
    for replica in serving:
        pod, copies = replica.pod, counted.pods[replica.pod]
        if len(copies.in_slots) < replica.slots:
            continue
        draining = replica.draining_copies & copies.resident & order.claims.keys()
        able = (n for n in sorted(draining, key=order.rank) if _priority(versions, n) <= priority)
        for name in chain(able, order.resident(pod, copies, priority)):
            if name not in replica.backing_off_copies:
                found.append((name not in draining, order.claims[name], pod, name))
                break
    if not found:
        return None
    _, _, pod, name = min(found)
    return DrainCopy(pod, name, f"{name} on {pod} takes no new requests, to make room")


def _priority(versions: Mapping[str, AdapterVersion], engine_name: str) -> int:
    return versions[engine_name].placement.priority if engine_name in versions else 0
