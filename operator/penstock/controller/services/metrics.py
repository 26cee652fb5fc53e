"""Collector of the series of all services, which are built anew at each scrape.

Nothing is kept of a deleted service, so no series can outlive it. Only the leading replica has any.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.registry import Collector

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.clients.metrics.metric_set import families
from penstock.controller.process.failures import Failures
from penstock.controller.watching.children import by_service, children_of
from penstock.core.observed.fetch_totals import FetchTotals, reports_of
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.stored_status import stored_phase, stored_status
from penstock.core.scaling.attainment import AttainmentWindow, budget_left
from penstock.core.scaling.quotas import OVER_BUDGET
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import ServiceSpec
from penstock.observability.metrics import operator as specs
from penstock.observability.metrics.fetches import MODEL_FETCHES
from penstock.observability.service_samples import (
    Sample,
    fetch_samples,
    replica_samples,
    rollout_samples,
    spec_samples,
    status_samples,
)

# Interval at which the gateways' counts are added up. The scaler scrapes them every two seconds.
UPDATE_INTERVAL_S = 5.0
# Steps of a decision that ask for replicas. The other steps report spare capacity, or limit what was asked.
REQUESTING_STEPS = ("need", "queue", "up")


@dataclass(slots=True)
class _History:
    """Counts of one service since this replica leads."""

    uid: str  # of the service. One that is created again has another uid, and new counts.
    phases: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(PHASES, 0)))
    reasons: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=lambda: Counter(up=0, down=0))
    window: AttainmentWindow = field(default_factory=AttainmentWindow)
    fetches: FetchTotals = field(default_factory=FetchTotals)
    decision: Decision | None = None
    num_unreadable: int = 0


class ServiceMetrics(Collector):
    """The series of all services.

    services: as the watch last reported them. children: all Deployments and pods. reading: the gateways'
    counts of a service; None if no gateway knows it.
    """

    def __init__(
        self,
        *,
        services: Callable[[], Mapping[Key, Object]],
        children: Callable[[], tuple[list[Object], list[Object]]],
        reading: Callable[[Key], GatewayReading | None],
        failures: Failures,
    ) -> None:
        self._services = services
        self._children = children
        self._reading = reading
        self._failures = failures
        self._histories: dict[Key, _History] = {}
        self.is_leading = False

    def observe_decision(
        self, service: ServiceSpec, observation: Observation, decision: Decision
    ) -> None:
        """Count a scaling decision."""
        history = self._history(service.key, service.uid)
        history.reasons[decision.code] += 1
        if decision.desired != observation.provisioned:
            history.steps["up" if decision.desired > observation.provisioned else "down"] += 1
        history.decision = decision
        history.num_unreadable = len(observation.missing)

    async def run(self) -> None:
        """Run `observe_requests` every few seconds until cancelled."""
        while True:
            with self._failures.isolate_errors("metrics"):
                self.observe_requests()
                self.observe_fetches()
            await asyncio.sleep(UPDATE_INTERVAL_S)

    def observe_requests(self) -> None:
        """Add the gateways' counts to the windows of all services with objectives.

        Drops the counts of deleted services.
        """
        now_s, services = monotonic(), self._services()
        self._histories = {k: h for k, h in self._histories.items() if k in services}
        for key, body in services.items():
            reading = self._reading(key) if "objectives" in body.get("spec", {}) else None
            if reading is not None:
                history = self._history(key, body["metadata"]["uid"])
                history.window = history.window.updated(now_s, reading)

    def observe_fetches(self) -> None:
        """Count the fetches of models that pods have ended since the last time."""
        services = self._services()
        deployments, pods = map(by_service, self._children())
        for key, found in pods.items():
            fetching = [pod for pod in found if "initContainerStatuses" in pod.get("status", {})]
            if not fetching or key not in services:
                continue
            with self._failures.isolate_errors("metrics", *key):
                own = children_of(services[key], deployments.get(key, []), fetching)[1]
                history = self._history(key, services[key]["metadata"]["uid"])
                history.fetches = history.fetches.updated(reports_of(own))

    def observe_change(self, key: Key, before: Object | None, after: Object) -> None:
        """Count a change of the rollout's phase. before: the service as it was; None if it is new."""
        phase = stored_phase(after)
        if before is not None and phase and phase != stored_phase(before):
            self._history(key, after["metadata"]["uid"]).phases[phase] += 1

    def collect(self) -> Iterable[Metric]:
        """Return all series; none while another replica leads.

        Called in a thread: what the event loop may change meanwhile is copied.
        """
        if not self.is_leading:
            return []
        services = dict(self._services())
        deployments, pods = map(by_service, self._children())
        found: list[tuple[str, Sample]] = []
        for key, body in services.items():
            with self._failures.isolate_errors("metrics", *key):
                own = deployments.get(key, []), pods.get(key, [])
                found += (("/".join(key), sample) for sample in self._samples(key, body, *own))
        return families(specs.SERVICES, found)

    def _samples(
        self, key: Key, body: Object, deployments: list[Object], pods: list[Object]
    ) -> list[Sample]:
        status, metadata = stored_status(body), body["metadata"]
        history = self._known_history(key, metadata["uid"]) or _History(metadata["uid"])
        found = [*status_samples(status, metadata.get("generation", 0))]
        phases = dict(history.phases)
        found += [Sample(specs.ROLLOUT_TRANSITIONS, n, (p,)) for p, n in phases.items()]
        spec = accepted_spec(body)
        if spec is None:
            return found
        found += spec_samples(spec, status)
        own_deployments, own_pods = children_of(body, deployments, pods)
        now_s = unix_time()
        found += rollout_samples(spec, status, own_pods, now_s)
        found += replica_samples(spec, own_deployments, own_pods, now_s)
        found += _decision_samples(spec, history)
        found += fetch_samples(history.fetches, MODEL_FETCHES)
        if spec.scaling.objectives is not None:
            found += _attainment_samples(history.window, spec.scaling.objectives)
        return found

    def _history(self, key: Key, uid: str) -> _History:
        """The counts of a service; new ones if it was created again."""
        history = self._known_history(key, uid)
        if history is None:
            history = self._histories[key] = _History(uid)
        return history

    def _known_history(self, key: Key, uid: str) -> _History | None:
        history = self._histories.get(key)
        return history if history is not None and history.uid == uid else None


def _decision_samples(spec: ServiceSpec, history: _History) -> Iterator[Sample]:
    """Samples of the decisions; none before the first one and in mode External."""
    decision = history.decision
    if decision is None or spec.scaling.mode == "External":
        return
    for reason, count in dict(history.reasons).items():
        yield Sample(specs.DECISIONS, count, (reason,))
    for direction, count in dict(history.steps).items():
        yield Sample(specs.SCALE_STEPS, count, (direction,))
    yield Sample(specs.LAST_DECISION_REASON, 1, (decision.code,))
    yield Sample(specs.BLIND, decision.is_blind)
    yield Sample(specs.AT_MAXIMUM, is_at_maximum(spec, decision))
    yield Sample(specs.UNREADABLE_ENGINES, history.num_unreadable)


def is_at_maximum(spec: ServiceSpec, decision: Decision) -> bool:
    """Whether more replicas are needed than maxReplicas, limits of variants or a quota allow."""
    if decision.code in (OVER_BUDGET, "AtMaximum"):
        return True
    is_at_bound = decision.desired >= spec.scaling.max_replicas
    wanted = (entry.replicas for entry in decision.trail if entry.step in REQUESTING_STEPS)
    return is_at_bound and any(replicas > decision.desired for replicas in wanted)


def _attainment_samples(window: AttainmentWindow, objectives: Objectives) -> Iterator[Sample]:
    for objective, ratio in window.attainment(objectives).items():
        yield Sample(specs.ATTAINMENT, ratio, (objective,))
        left = budget_left(ratio, objectives.attainment)
        yield Sample(specs.ERROR_BUDGET_LEFT, left, (objective,))
