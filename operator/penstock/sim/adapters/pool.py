"""The pods of a service under one rule of placement and routing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterCounts
from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.workload import Call
from penstock.sim.clock import Clock
from penstock.sim.profile import Profile
from penstock.sim.request import Request


class Rule(Protocol):
    """Sends requests to pods, and may load and unload adapters. tick_s: of `tick`; 0: never called."""

    tick_s: float

    def start(self, pool: "Pool") -> None:
        """Called once before the first request."""

    def arrived(self, request: Request, name: str) -> None:
        """Send the request to a pod, now or later."""

    def freed(self, pod: AdapterPod, name: str) -> None:
        """A load ended on the pod, or a copy there has no requests any more."""

    def tick(self) -> None: ...


@dataclass(slots=True)
class Totals:
    """All requests of a run. misses: whether the adapter of each was in memory nowhere when it came."""

    requests: list[Request]
    misses: list[bool]


class Pool:
    """Pods with requests in flight. adapters, names: by index; names in engines.

    counts: as a gateway counts them; requests that wait for a copy are in flight.
    """

    def __init__(
        self,
        rule: Rule,
        profile: Profile,
        num_pods: int,
        slots: int,
        load_s: list[float],
        loads_at_once: int = 1,
    ) -> None:
        self.clock = Clock()
        self.adapters = [AdapterVersion(f"a{i}", f"pvc://claim/{i}") for i in range(len(load_s))]
        self.names = [version.engine_name for version in self.adapters]
        self.load_s = dict(zip(self.names, load_s, strict=True))
        self.pods = [
            AdapterPod(
                f"p{i}", slots, profile, self.clock, self, self.load_s.__getitem__, loads_at_once
            )
            for i in range(num_pods)
        ]
        self.totals = Totals([], [])
        self.counts: dict[str, AdapterCounts] = {}
        self._adapter_of: dict[str, str] = {}
        self._rule = rule
        rule.start(self)

    @property
    def num_loads(self) -> int:
        return sum(pod.num_loads for pod in self.pods)

    def run(self, calls: Iterable[Call], until_s: float) -> None:
        """Run all calls and go on until this time."""
        for index, call in enumerate(calls):
            self._arrive_at(index, call)
        if self._rule.tick_s:
            self._tick()
        self.clock.run(until_s)

    def loaded(self, pod: AdapterPod, name: str) -> None:
        self._rule.freed(pod, name)

    def idle(self, pod: AdapterPod, name: str) -> None:
        self._rule.freed(pod, name)

    def started(self, request: Request) -> None:
        """Do nothing: the request holds the time of its first token."""

    def ended(self, request: Request) -> None:
        self.leave(request)

    def leave(self, request: Request) -> None:
        """The request ended or was refused."""
        name = self._adapter_of.pop(request.request_id)
        before = self.counts[name]
        self.counts[name] = AdapterCounts(before.arrivals, in_flight=before.in_flight - 1)

    def _arrive_at(self, index: int, call: Call) -> None:
        name = self.names[call.adapter]
        request = Request(f"r{index}", call.at_s, call.prompt_tokens, call.output_tokens)

        def arrive() -> None:
            self.totals.requests.append(request)
            self.totals.misses.append(not any(pod.has(name) for pod in self.pods))
            before = self.counts.get(name, AdapterCounts())
            self.counts[name] = AdapterCounts(before.arrivals + 1, in_flight=before.in_flight + 1)
            self._adapter_of[request.request_id] = name
            self._rule.arrived(request, name)

        self.clock.schedule_at(call.at_s, arrive)

    def _tick(self) -> None:
        self._rule.tick()
        self.clock.schedule_at(self.clock.now + self._rule.tick_s, self._tick)
