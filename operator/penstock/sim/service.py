"""Builds one service of a scenario from load, gateway, fleet, metrics and scaler."""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.idle import IdleRule
from penstock.core.scaling.rule import Bounds
from penstock.sim import policies, scenario
from penstock.sim.clock import Clock
from penstock.sim.faults import Fault
from penstock.sim.fleet import Fleet
from penstock.sim.gateway import Gateway
from penstock.sim.metrics import Metrics
from penstock.sim.quota import Quota
from penstock.sim.release import Rollout
from penstock.sim.request import Request
from penstock.sim.scaler import Scaler
from penstock.sim.traces.read import requests_of
from penstock.sim.traces.source import Trace
from penstock.sim.workload.generate import (
    PREFIX_BLOCK_TOKENS,
    Closed,
    Open,
    Users,
    has_prefixes,
    open_requests,
)


def _stream(seed: int, service: str, purpose: str) -> Random:
    return Random(f"{seed}/{service}/{purpose}")


class Service:
    """Simulated service. All its random draws come from `seed`."""

    def __init__(
        self,
        spec: scenario.Service,
        parent: scenario.Scenario,
        clock: Clock,
        quota: Quota,
        seed: int,
        policy: str,
        knobs: Mapping[str, str],
    ) -> None:
        random = partial(_stream, seed, spec.name)
        self.spec = spec
        self.quota = quota
        self._clock = clock
        self._duration_s = parent.duration_s
        self._planned, self._users, block_tokens = planned_load(
            spec.workload, parent.duration_s, random("load")
        )
        self.gateway = Gateway(
            spec.admission_spec,
            clock,
            random("routing"),
            self._finished,
            spec.engine_tpot_s,
            prefix_block_tokens=block_tokens,
        )
        self.fleet = Fleet(
            spec.name,
            spec.engines,
            spec.offers,
            clock,
            self.gateway,
            quota,
            random("pods"),
            block_tokens,
        )
        self.metrics = Metrics(parent.metrics, clock, self.fleet, self.gateway, random("metrics"))
        known = () if self._users else self._planned
        rule = self.rule = policies.make(policy, knobs, spec, known)
        idle = None if spec.idle_after_s is None else IdleRule(spec.idle_after_s)
        self.scaler = Scaler(
            rule, spec.objectives, spec.bounds, clock, self.metrics, self.fleet, idle
        )
        self.rollout: Rollout | None = None
        if spec.release is not None:
            self.rollout = Rollout(spec.release, spec.objectives, clock, self.fleet, self.gateway)
            self.scaler.ask = self.rollout.ask
        quota.waiting.append(self.fleet.schedule_waiting)

    def begin(self) -> None:
        initial = self.spec.initial_replicas
        total = self.spec.min_replicas if initial is None else initial
        by_variant = {offer.name: offer.least for offer in self.spec.offers}
        first = next(iter(by_variant))
        by_variant[first] += max(0, total - sum(by_variant.values()))
        self.fleet.begin(by_variant)
        self.quota_changed()
        if self.rollout is not None:
            self.rollout.begin()
        self.scaler.begin()
        self._arrivals = iter(self._planned)
        self._expect_next()

    def quota_changed(self) -> None:
        """Bound the scaler by the GPU quota, as the operator does for a ResourceQuota."""
        spec, most = self.spec, {}
        for variant, engine in spec.engines.items():
            limit = self.quota.limits.get(engine.gpu, engine.gpus * spec.max_replicas)
            most[variant] = limit // engine.gpus
        total = min(spec.max_replicas, sum(most.values()))
        self.scaler.bounds = Bounds(min(spec.min_replicas, total), total)
        if isinstance(self.rule, ObjectivesRule) and self.rule.variants:
            self.scaler.rule = self.rule.limited(most)
        self.fleet.schedule_waiting()

    def _expect_next(self) -> None:
        request = next(self._arrivals, None)
        if request is not None and request.arrival_s < self._duration_s:
            self._clock.schedule_at(request.arrival_s, partial(self._arrive, request))

    def _arrive(self, request: Request) -> None:
        self._expect_next()
        self._send(request)

    def _send(self, request: Request) -> None:
        self.gateway.arrive(request)
        self.scaler.note_arrival()

    def _finished(self, request: Request) -> None:
        """Handle the end of a request. In a closed loop its user sends the next one after a think time."""
        if self.rollout is not None:
            self.rollout.finished(request)
        if self._users is None:
            return
        following = self._users.next_after(request, self._clock.now)
        if following is not None and following.arrival_s < self._duration_s:
            self._clock.schedule_at(following.arrival_s, partial(self._send, following))


def planned_load(
    workload: Open | Closed | Trace, duration_s: float, random: Random
) -> tuple[Sequence[Request], Users | None, int]:
    """Requests known beforehand, users of a closed loop, and tokens per id of a prefix (0: none shared)."""
    if isinstance(workload, Trace):
        requests, block_tokens = requests_of(workload, duration_s, random)
        return requests, None, block_tokens
    block_tokens = PREFIX_BLOCK_TOKENS if has_prefixes(workload) else 0
    if isinstance(workload, Closed):
        users = Users(workload, random)
        return users.first(), users, block_tokens
    return list(open_requests(workload, duration_s, random)), None, block_tokens


def schedule_fault(fault: Fault, services: Sequence[Service], clock: Clock) -> None:
    """Schedule the start and the end of a fault on the services that it names."""
    affected = [s for s in services if fault.service in ("", s.spec.name)]
    for service in affected:
        clock.schedule_at(fault.from_s, partial(fault.begin, service))
        if fault.to_s is not None:
            clock.schedule_at(fault.to_s, partial(fault.end, service))
