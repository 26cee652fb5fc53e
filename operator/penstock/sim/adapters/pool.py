"""The pods of a service under one rule of placement and routing."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial

from penstock.core.adapters.demand import NO_COUNTS, AdapterCounts
from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.scenario import Adapters
from penstock.sim.adapters.workload import load_times
from penstock.sim.clock import Clock
from penstock.sim.request import Request


class Rule(ABC):
    """Base of rules, which send requests to pods, and may load and unload adapters.

    tick_s: time between two calls of `tick`; 0: it is never called.
    """

    tick_s = 0.0
    pool: "Pool"

    def start(self, pool: "Pool") -> None:
        """Take the pool, before its first request."""
        self.pool = pool

    @abstractmethod
    def arrived(self, request: Request) -> None:
        """Send the request to a pod, now or later."""

    def freed(self, pod: AdapterPod, name: str) -> None:  # noqa: B027 - a default
        """React to the end of a load on the pod, or to a copy there without requests. Default: nothing."""

    def tick(self) -> None:  # noqa: B027 - a default
        """Place adapters, every tick_s. Default: nothing."""


class Pool:
    """Pods with requests in flight.

    requests: all that came. missed: ids of those whose adapter was in memory nowhere then. counts: by
    adapter, as a gateway counts them; requests that wait for a copy are in flight.
    """

    def __init__(self, rule: Rule, adapters: Adapters, seed: int) -> None:
        """seed: of the load times."""
        self.clock = Clock()
        load_s = load_times(adapters, seed)
        self.versions = list(load_s)
        by_name = {version.engine_name: each_s for version, each_s in load_s.items()}
        self.pods = [
            AdapterPod(f"p{i}", adapters, by_name, self.clock, self) for i in range(adapters.pods)
        ]
        self.requests: list[Request] = []
        self.missed: set[str] = set()
        self.counts: dict[str, AdapterCounts] = {}
        self._rule = rule
        rule.start(self)

    @property
    def num_loads(self) -> int:
        return sum(pod.num_loads for pod in self.pods)

    def run(self, requests: Iterable[Request], until_s: float) -> None:
        """Run all requests and go on until this time."""
        for request in requests:
            self.clock.schedule_at(request.arrival_s, partial(self._arrive, request))
        if self._rule.tick_s:
            self._tick()
        self.clock.run(until_s)

    def freed(self, pod: AdapterPod, name: str) -> None:
        self._rule.freed(pod, name)

    def ended(self, request: Request) -> None:
        """The request ended or was refused."""
        before = self.counts[request.adapter]
        self.counts[request.adapter] = AdapterCounts(
            before.arrivals, in_flight=before.in_flight - 1
        )

    def _arrive(self, request: Request) -> None:
        name = request.adapter
        self.requests.append(request)
        if not any(pod.has(name) for pod in self.pods):
            self.missed.add(request.request_id)
        before = self.counts.get(name, NO_COUNTS)
        self.counts[name] = AdapterCounts(before.arrivals + 1, in_flight=before.in_flight + 1)
        self._rule.arrived(request)

    def _tick(self) -> None:
        self._rule.tick()
        self.clock.schedule_at(self.clock.now + self._rule.tick_s, self._tick)
