"""Which copies may be evicted for another adapter, and what each is worth.

What a copy is worth is its part of the adapter's popularity: requests per second, divided by the number of
copies. Evicting by it is LFU over all pods together, with an average that forgets.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import NO_DEMAND, AdapterDemand
from penstock.core.adapters.replica import AdapterReplica, Copy

_OWN_NAME = re.compile(r".@[0-9a-f]{8}\Z")

# (priority, requests per second of a copy): the order of claims. A higher priority wins while its adapter
# has demand.
Claim = tuple[int, float]
NO_CLAIM: Claim = (-(2**31), 0.0)


@dataclass(frozen=True, slots=True)
class Victim:
    """A copy that may be evicted once it is idle."""

    claim: Claim
    engine_name: str
    is_idle: bool


def is_own_name(engine_name: str) -> bool:
    """Whether a name in an engine is a version of a LoraAdapter. All others were loaded by hand."""
    return _OWN_NAME.search(engine_name) is not None


def count_copies(replicas: Iterable[AdapterReplica]) -> Counter[str]:
    """Copies in memory or loading, by name."""
    return Counter(
        name
        for replica in replicas
        for name, copy in replica.copies.items()
        if copy.state != "Evicted"
    )


def used_slots(replica: AdapterReplica) -> int:
    return sum(copy.state != "Evicted" for copy in replica.copies.values())


def num_loading(replica: AdapterReplica) -> int:
    return sum(copy.state == "Loading" for copy in replica.copies.values())


def min_copies(version: AdapterVersion, num_pods: int) -> int:
    """Copies that an adapter has without demand."""
    placement = version.placement
    return num_pods if placement.policy == "All" else min(placement.min_copies, num_pods)


def may_evict(version: AdapterVersion, num_copies: int, num_pods: int) -> bool:
    """Whether a copy may make room: its adapter is not pinned, and has more copies than its minimum."""
    return not version.placement.is_pinned and num_copies > min_copies(version, num_pods)


def claim(version: AdapterVersion, demand: AdapterDemand, num_copies: int) -> Claim:
    """Claim of one of an adapter's copies to its slot."""
    if demand.requests_per_s <= 0:
        return NO_CLAIM
    return version.placement.priority, demand.requests_per_s / max(1, num_copies)


def find_victims(
    copies: Mapping[str, Copy],
    versions: Mapping[str, AdapterVersion],
    demand: Mapping[str, AdapterDemand],
    num_copies: Mapping[str, int],
    num_pods: int,
) -> Iterator[Victim]:
    """Copies in the memory of a pod that `may_evict` allows to evict.

    copies: on the pod, by name in engines. num_copies: likewise, on all num_pods pods.
    """
    for name, copy in copies.items():
        version = versions.get(name)
        if version is None or copy.state != "Resident":
            continue
        total = num_copies.get(name, 1)
        if may_evict(version, total, num_pods):
            worth = claim(version, demand.get(name, NO_DEMAND), total)
            yield Victim(worth, name, not copy.requests)


def find_coldest(found: Iterable[Victim]) -> Victim | None:
    """The idle copy that is worth least; None if all are in use."""
    idle = (victim for victim in found if victim.is_idle)
    return min(idle, key=lambda victim: (victim.claim, victim.engine_name), default=None)


def by_engine_name(adapters: Sequence[AdapterVersion]) -> dict[str, AdapterVersion]:
    return {version.engine_name: version for version in adapters}
