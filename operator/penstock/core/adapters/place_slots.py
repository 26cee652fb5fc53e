"""The pods of a placement, with the changes planned so far."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import NO_DEMAND, AdapterDemand
from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.core.adapters.retention import (
    Claim,
    Victim,
    count_copies,
    find_coldest,
    find_victims,
    num_loading,
    used_slots,
)

# Loads in flight on one pod, with those that wait for others: as many as Penstock's engine reads at once.
MAX_LOADS_PER_POD = 4

LOADING = Copy("Loading")


class Pod:
    """A pod in a plan. busy: requests in flight that its copies are expected to have.

    victim: the copy that is worth least of those that may be evicted; is_victim_known: whether it is
    up to date.
    """

    def __init__(self, replica: AdapterReplica) -> None:
        self.name = replica.pod
        self.slots = replica.slots
        self.side = replica.side
        self.copies = dict(replica.copies)
        self.num_used = used_slots(replica)
        self.num_loading = num_loading(replica)
        self.busy = 0.0
        self.victim: Victim | None = None
        self.is_victim_known = False


# (key for the comparison, pod, copy that is evicted there or "").
Choice = tuple[tuple[bool, int, float, int], Pod, str]


class Pods:
    """Pods with their copies after the planned changes.

    refused: loads that are not planned, as (name in engines, pod). num_copies: by name in engines.
    """

    def __init__(
        self,
        replicas: Sequence[AdapterReplica],
        versions: Mapping[str, AdapterVersion],
        demand: Mapping[str, AdapterDemand],
        refused: Collection[tuple[str, str]] = (),
    ) -> None:
        self._versions, self._demand, self._refused = versions, demand, refused
        self._pods = {r.pod: Pod(r) for r in replicas}
        self.num_copies: Counter[str] = count_copies(replicas)
        self.loads: list[tuple[str, str]] = []
        self.unloads: list[tuple[str, str]] = []
        for pod in self._pods.values():
            pod.busy = sum(
                demand[name].busy / self.num_copies[name]
                for name, copy in pod.copies.items()
                if name in demand and copy.state != "Evicted"
            )

    @property
    def num_pods(self) -> int:
        return len(self._pods)

    def unload(self, name: str, pod_name: str) -> None:
        """Plan to unload a copy."""
        pod = self._pods[pod_name]
        copy = pod.copies.pop(name)
        self.unloads.append((name, pod_name))
        if copy.state != "Evicted":
            pod.num_used -= 1
            pod.busy -= self._demand.get(name, NO_DEMAND).busy / self.num_copies[name]
            self._recount(name, self.num_copies[name] - 1)
        pod.is_victim_known = False

    def unload_idle(self, name: str, number: int) -> None:
        """Plan to unload at most this many idle copies, on the busiest pods first.

        Each side keeps one: its next request would load it again.
        """
        idle = [
            pod
            for pod in self._pods.values()
            if name in pod.copies
            and pod.copies[name].state == "Resident"
            and pod.copies[name].requests == 0
        ]
        sides = Counter(
            pod.side
            for pod in self._pods.values()
            if name in pod.copies and pod.copies[name].state == "Resident"
        )
        for pod in sorted(idle, key=lambda pod: (-pod.busy, pod.name)):
            if number > 0 and sides[pod.side] > 1:
                self.unload(name, pod.name)
                sides[pod.side] -= 1
                number -= 1

    def load(self, name: str, above: Claim | None) -> bool:
        """Plan one more copy, on the least busy pod that can take it. Returns whether there was one.

        above: only copies with a weaker claim are evicted. None: for a minimum, any that may be evicted,
        and at last minimum copies of adapters with a lower priority, and of another version of the adapter.
        """
        able = [
            pod
            for pod in self._pods.values()
            if name not in pod.copies
            and pod.num_loading < MAX_LOADS_PER_POD
            and (name, pod.name) not in self._refused
        ]
        choices = [choice for pod in able if (choice := self._choice(pod, above)) is not None]
        if not choices and above is None:
            choices = [choice for pod in able for choice in self._over_minimum(pod, name)]
        if not choices:
            return False
        _, pod, evicted = min(choices, key=lambda choice: (choice[0], choice[1].name))
        if evicted:
            self.unload(evicted, pod.name)
        self._add(name, pod)
        return True

    def _choice(self, pod: Pod, above: Claim | None) -> Choice | None:
        """How a pod would take a copy; None if it cannot."""
        if pod.num_used < pod.slots:
            free = pod.slots - pod.num_used
            return (False, -free if above is None else 0, pod.busy, pod.num_used), pod, ""
        victim = self._victim(pod)
        if victim is None or (above is not None and victim.claim >= above):
            return None
        return (True, 0, pod.busy, pod.num_used), pod, victim.engine_name

    def _over_minimum(self, pod: Pod, wanted: str) -> Iterator[Choice]:
        """Idle copies of which the wanted version may take the place, although a minimum protects them."""
        mine = self._versions[wanted]
        for name, copy in pod.copies.items():
            version = self._versions.get(name)
            if version is None or copy.state != "Resident" or copy.requests:
                continue
            priority = version.placement.priority
            is_lower = priority < mine.placement.priority and not version.placement.is_pinned
            # The other version of a rollout shares its slots, until both have as many.
            has_more = self.num_copies[name] > self.num_copies[wanted] + 1
            if is_lower or (version.name == mine.name and has_more):
                yield (True, priority, pod.busy, pod.num_used), pod, name

    def _add(self, name: str, pod: Pod) -> None:
        self._recount(name, self.num_copies[name] + 1)
        pod.copies[name] = LOADING
        pod.is_victim_known = False
        pod.num_used += 1
        pod.num_loading += 1
        pod.busy += self._demand.get(name, NO_DEMAND).busy / self.num_copies[name]
        self.loads.append((name, pod.name))

    def _victim(self, pod: Pod) -> Victim | None:
        """The copy that is worth least of those that may be evicted."""
        if not pod.is_victim_known:
            found = find_victims(
                pod.copies, self._versions, self._demand, self.num_copies, len(self._pods)
            )
            pod.victim = find_coldest(found)
            pod.is_victim_known = True
        return pod.victim

    def _recount(self, name: str, copies: int) -> None:
        """Set the number of an adapter's copies, and divide its requests among them."""
        before = self.num_copies[name]
        busy = self._demand.get(name, NO_DEMAND).busy
        change = busy / copies - busy / before if copies and before else 0.0
        self.num_copies[name] = copies
        for pod in self._pods.values():
            if name in pod.copies:
                pod.busy += change
                pod.is_victim_known = False
