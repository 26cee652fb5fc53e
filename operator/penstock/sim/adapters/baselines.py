"""Published rules of placement and routing. With all of them the engines evict by LRU."""

from abc import abstractmethod
from collections import deque
from hashlib import blake2b
from random import Random

from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.pool import Rule
from penstock.sim.request import Request


class PodRule(Rule):
    """Base of rules that send each request to a pod at once; the engine loads what it lacks."""

    def arrived(self, request: Request) -> None:
        self.choose(request.adapter).submit(request)

    @abstractmethod
    def choose(self, name: str) -> AdapterPod:
        """The pod for a request for this adapter."""


class RandomLru(PodRule):
    """LRU per replica, with random routing."""

    def __init__(self) -> None:
        self._random = Random(0)

    def choose(self, name: str) -> AdapterPod:
        return self._random.choice(self.pool.pods)


class AllPods(PodRule):
    """AIBrix with an adapter on all pods (production-stack and KubeAI as well): the least open requests.

    An engine that has fewer slots than adapters loads what it lacks.
    """

    def choose(self, name: str) -> AdapterPod:
        return least_open(self.pool.pods)


class LeastAdapters(PodRule):
    """AIBrix's default: an adapter lives on one pod, the one with the fewest adapters when it appeared."""

    def __init__(self) -> None:
        self._pod_of: dict[str, AdapterPod] = {}
        self._num_adapters: dict[str, int] = {}

    def choose(self, name: str) -> AdapterPod:
        if name not in self._pod_of:
            pods = self.pool.pods
            pod = min(pods, key=lambda pod: self._num_adapters.get(pod.name, 0))
            self._num_adapters[pod.name] = self._num_adapters.get(pod.name, 0) + 1
            self._pod_of[name] = pod
        return self._pod_of[name]


class ResidentFirst(PodRule):
    """Prefers pods that have the adapter, as llm-d's scorer; then the least open requests."""

    def choose(self, name: str) -> AdapterPod:
        return least_open([pod for pod in self.pool.pods if pod.has(name)] or self.pool.pods)


class Dynamo(PodRule):
    """Dynamo's default: copies in proportion to demand, placed by rendezvous hashing.

    Every 3 s: arrivals of the last 90 s, smoothed (alpha 0.3); copies of an adapter: its share of all slots,
    at least 1; fewer copies only after 3 ticks. Adapters without arrivals, or beyond the slots, have the
    first pod by hash. A request goes to the least busy pod of the set that has the adapter, else of the set.
    is_eager: whether added copies are loaded at once; in Dynamo, requests load them.
    """

    tick_s = 3.0
    alpha = 0.3
    window_ticks = 30
    cooldown_ticks = 3

    def __init__(self, is_eager: bool = False) -> None:
        self._is_eager = is_eager
        self._ranked: dict[str, list[AdapterPod]] = {}
        self._smoothed: dict[str, float] = {}
        self._copies: dict[str, int] = {}
        self._last_fall: dict[str, int] = {}
        self._num_ticks = 0
        self._past: deque[dict[str, int]] = deque(maxlen=self.window_ticks)

    def choose(self, name: str) -> AdapterPod:
        chosen = self._hashed(name)[: self._copies.get(name, 1)]
        return least_open([pod for pod in chosen if pod.has(name)] or chosen)

    def tick(self) -> None:
        self._num_ticks += 1
        arrivals = {name: each.arrivals for name, each in self.pool.counts.items()}
        first = self._past[0] if self._past else {}
        self._past.append(arrivals)
        counts = {name: number - first.get(name, 0) for name, number in arrivals.items()}
        for name, count in counts.items():
            before = self._smoothed.get(name, float(count))
            self._smoothed[name] = self.alpha * count + (1 - self.alpha) * before
        loads = {name: round(load) for name, load in self._smoothed.items() if round(load) > 0}
        self._allot(loads)

    def _allot(self, loads: dict[str, int]) -> None:
        num_pods = len(self.pool.pods)
        slots = sum(pod.slots for pod in self.pool.pods)
        total = sum(loads.values())
        left = slots
        for name in sorted(loads, key=lambda name: (-loads[name], name)):
            wanted = min(num_pods, max(1, int(slots * loads[name] / total)), max(1, left))
            left -= wanted
            self._set(name, wanted)
        for name in self._copies.keys() - loads.keys():
            self._copies[name] = 1

    def _set(self, name: str, wanted: int) -> None:
        current = self._copies.get(name, 0)
        if wanted >= current:
            self._copies[name] = wanted
            self._last_fall.pop(name, None)
            if self._is_eager and wanted > 1:
                for pod in self._hashed(name)[:wanted]:
                    pod.load(name)
            return
        since = self._last_fall.setdefault(name, self._num_ticks)
        if self._num_ticks - since >= self.cooldown_ticks:
            self._copies[name] = wanted
            self._last_fall.pop(name, None)

    def _hashed(self, name: str) -> list[AdapterPod]:
        if name not in self._ranked:
            self._ranked[name] = sorted(
                self.pool.pods,
                key=lambda pod: blake2b(f"{name} {pod.name}".encode(), digest_size=8).digest(),
            )
        return self._ranked[name]


def least_open(pods: list[AdapterPod]) -> AdapterPod:
    return min(pods, key=lambda pod: (pod.num_open, pod.name))
