"""The engines of one service behind a gateway with one routing rule."""

from collections.abc import Sequence
from functools import partial
from random import Random

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.routing.pick import Side
from penstock.sim.clock import Clock
from penstock.sim.fleet import Fleet
from penstock.sim.gateway import STABLE, Gateway
from penstock.sim.quota import Quota
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing_runs.scenario import Canary, Event, Restart, RoutingScenario, Scale
from penstock.sim.traces.read import requests_of
from penstock.sim.traces.source import Trace
from penstock.sim.workload.chats import Chats, Conversations
from penstock.sim.workload.generate import (
    PREFIX_BLOCK_TOKENS,
    Rate,
    has_prefixes,
    open_requests,
)

NEW = Side("new")
# Interval at which the requests of each engine are counted, and new engines are checked for readiness.
SAMPLE_S = 1.0
# More than any run has: a rule sends each request at once, or shows what it does under overload.
MAX_QUEUED, MAX_WAIT_S = 1_000_000, 600.0


class Pool:
    """Simulation of a scenario with one rule. Rules with the same seed get the same requests.

    requests: all that came. effects: when each event took effect, such as new engines that were ready, and
    the engine that restarted. imbalance: requests at the fullest engine over the mean, at each count.
    """

    def __init__(self, scenario: RoutingScenario, rule: Picker, seed: int) -> None:
        def random(purpose: str) -> Random:
            return Random(f"{seed}/{purpose}")

        self.scenario = scenario
        self.clock = Clock()
        self._planned, self._conversations, self.block_tokens = planned_load(
            scenario.workload, scenario.duration_s, random("load")
        )
        self.gateway = Gateway(
            AdmissionSpec(scenario.admission, scenario.ttft_s, MAX_QUEUED, MAX_WAIT_S),
            self.clock,
            random("routing"),
            self._ended,
            picker=rule,
            keeps_side=scenario.keeps_side,
            prefix_block_tokens=self.block_tokens,
        )
        self.fleet = Fleet(
            "p",
            {"": scenario.engine},
            (),
            self.clock,
            self.gateway,
            Quota(),
            random("pods"),
            self.block_tokens,
        )
        self.effects: list[tuple[float, Event, str]] = []
        self.imbalance: list[float] = []

    @property
    def requests(self) -> Sequence[Request]:
        return self.gateway.requests

    def run(self, drain_s: float) -> None:
        """Run all requests, and go on for drain_s seconds after the last arrival."""
        self.fleet.begin({"": self.scenario.replicas})
        for event in self.scenario.events:
            self.clock.schedule_at(event.at_s, partial(self._apply, event))
        self._arrivals = iter(self._planned)
        self._expect_next()
        self.clock.schedule_at(self.scenario.warm_up_s, self._count_open)
        self.clock.run(self.scenario.duration_s + drain_s)

    def _expect_next(self) -> None:
        request = next(self._arrivals, None)
        if request is not None:
            self.clock.schedule_at(request.arrival_s, partial(self._arrive, request))

    def _arrive(self, request: Request) -> None:
        self._expect_next()
        self.gateway.arrive(request)

    def _ended(self, request: Request) -> None:
        if self._conversations is None:
            return
        following = self._conversations.next_after(request, self.clock.now)
        if following is not None and following.arrival_s < self.scenario.duration_s:
            arrive = partial(self.gateway.arrive, following)
            self.clock.schedule_at(following.arrival_s, arrive)

    def _apply(self, event: Event) -> None:
        match event:
            case Restart():
                ready = self.fleet.of_phase("Ready")
                pod = max(ready, key=lambda each: each.engine.num_open)
                self.effects.append((self.clock.now, event, pod.name))
                self.fleet.crash(pod)
            case Scale(replicas=replicas):
                self.fleet.scale_side(STABLE, replicas)
                self._when_ready(event)
            case Canary(replicas=replicas):
                self.fleet.scale_side(NEW, replicas)
                self._when_ready(event)

    def _when_ready(self, event: Scale | Canary) -> None:
        """Wait until no engine is starting. Then a canary gets its traffic, and the old side shrinks."""
        if self.fleet.of_phase("Starting"):
            again = partial(self._when_ready, event)
            self.clock.schedule_at(self.clock.now + SAMPLE_S, again)
            return
        self.effects.append((self.clock.now, event, ""))
        if isinstance(event, Canary):
            self.gateway.split({STABLE: 100 - event.weight, NEW: event.weight})
            self.fleet.scale_side(STABLE, max(1, self.scenario.replicas - event.replicas))

    def _count_open(self) -> None:
        num_open = [pod.engine.num_open for pod in self.fleet.of_phase("Ready")]
        if total := sum(num_open):
            self.imbalance.append(max(num_open) * len(num_open) / total)
        if self.clock.now + SAMPLE_S < self.scenario.duration_s:
            self.clock.schedule_at(self.clock.now + SAMPLE_S, self._count_open)


def planned_load(
    workload: Rate | Trace | Chats, duration_s: float, random: Random
) -> tuple[Sequence[Request], Conversations | None, int]:
    """Requests known beforehand, conversations that go on, and tokens per id of a prefix (0: none shared)."""
    match workload:
        case Trace():
            requests, block_tokens = requests_of(workload, duration_s, random)
            return requests, None, block_tokens
        case Chats():
            conversations = Conversations(workload, duration_s, random)
            return conversations.first(), conversations, workload.block_tokens
        case _:
            block_tokens = PREFIX_BLOCK_TOKENS if has_prefixes(workload) else 0
            return list(open_requests(workload, duration_s, random)), None, block_tokens
