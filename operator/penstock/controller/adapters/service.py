"""Placement of the adapters of one service, and what it remembers between two passes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.logs import service_fields
from penstock.clients.pods.engine_adapters import Copies
from penstock.controller.adapters.copy_changes import Change, CopyChanges
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterCounts, AdapterDemand, DemandState, estimate_demand
from penstock.core.adapters.first_reads import first_reads
from penstock.core.adapters.load_failures import (
    LoadFailure,
    after_failure,
    after_success,
    blocked,
    keep_recent,
)
from penstock.core.adapters.place import PlacementPlan, place
from penstock.core.adapters.placement_record import AdapterRecord, PlacementRecord
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.retention import is_own_name
from penstock.core.reconcile.adapter_state import LoadError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceInputs:
    """Inputs of one pass over a service."""

    versions: Sequence[AdapterVersion]  # of the accepted adapters
    unread: Sequence[str]  # names in engines of versions that no engine has read yet
    # Failed loads that the statuses show, by name and pod
    errors: Mapping[str, Mapping[str, LoadError]]
    ready: frozenset[str]  # names of all pods that take adapters
    # Pods whose copies are known; `listed`: these copies
    pods: Mapping[Key, LoraPod]
    listed: Mapping[Key, Copies]
    # Counts of the gateways by name in engines; None until a gateway has been asked
    counts: Mapping[str, AdapterCounts] | None
    shown_per_s: Mapping[str, float]  # demand by name as the statuses show it


@dataclass(slots=True)
class AdapterService:
    """The adapters of one service."""

    changes: CopyChanges
    demand_state: DemandState | None = None
    # Versions whose last load failed, by name in engines. It holds for all pods, or, if one has a copy,
    # for those that did not load it.
    backoff: Mapping[str, LoadFailure] = field(default_factory=dict)
    # Failed loads of the versions in backoff, by name and pod
    errors: dict[str, dict[str, LoadError]] = field(default_factory=dict)
    known: frozenset[str] = frozenset()  # names whose stored errors have been read
    replicas: tuple[AdapterReplica, ...] = ()  # pods with their copies, at the last pass
    plan: PlacementPlan = field(default_factory=PlacementPlan)
    at_s: float = 0.0  # time of the last pass
    # num_loads, num_failed_loads, num_unloads: since this process leads
    num_loads: int = 0
    num_failed_loads: int = 0
    num_unloads: int = 0
    pinned: frozenset[str] = frozenset()  # names of pinned versions
    # Failed loads by gateways, by name, at the last pass; None before the first
    load_failures: Mapping[str, int] | None = None
    # Versions that a gateway could not load since then. One load here says why.
    lost: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether every slot has a copy that is never evicted: pinned, or loaded by hand."""
        return bool(self.replicas) and all(
            sum(name in self.pinned or not is_own_name(name) for name in replica.copies)
            >= replica.slots
            for replica in self.replicas
        )

    @property
    def demand(self) -> Mapping[str, AdapterDemand]:
        """Estimated demand by name in engines."""
        return {} if self.demand_state is None else self.demand_state.demand

    def run(self, inputs: ServiceInputs, now_s: float) -> None:
        """Place the adapters, and start the loads and unloads. now_s: steady time."""
        if inputs.counts is not None:
            self.demand_state = estimate_demand(
                inputs.counts, self.demand_state, now_s, inputs.shown_per_s
            )
        self._restore(inputs, now_s)
        self._forget(inputs, now_s)
        self.pinned = frozenset(v.engine_name for v in inputs.versions if v.placement.is_pinned)
        self.replicas = tuple(
            AdapterReplica(
                pod=pod.name,
                slots=pod.engine.slots,
                copies=self.changes.expected(key, inputs.listed[key]),
                load=0.0,  # placement goes by the demand of the copies
                loads_at_once=pod.engine.loads_at_once,
                side=pod.side,
                draining_copies=frozenset(),  # gateways alone drain copies
                backing_off_copies=frozenset(),
            )
            for key, pod in inputs.pods.items()
        )
        if inputs.counts is not None:
            self._note_lost(inputs.counts)
        self.at_s = now_s
        waiting, resident = blocked(self.backoff, now_s), self._resident()
        self.plan = self._plan(inputs, waiting, resident)
        self._start(inputs)

    def _plan(
        self, inputs: ServiceInputs, waiting: frozenset[str], resident: frozenset[str]
    ) -> PlacementPlan:
        """Plan the changes of copies.

        waiting: versions whose back-off is not over. resident: those with errors and a copy.
        """
        plan = place(
            inputs.versions,
            self.replicas,
            self.demand,
            (waiting - resident) | self._unreadable(resident),
            {(name, pod) for name in waiting & resident for pod in self.errors[name]},
        )
        lost = self.lost & {version.engine_name for version in inputs.versions}
        candidates = (*inputs.unread, *sorted(lost - set(inputs.unread)))
        unread = [name for name in candidates if name not in waiting]
        counts = inputs.counts or {}
        failing = {name for name in inputs.unread if name in counts and counts[name].load_failures}
        reads = first_reads(unread, self.replicas, plan, failing | lost)
        return PlacementPlan((*plan.loads, *reads), plan.unloads, plan.adapters)

    def record(
        self, service: str, counts: Mapping[str, AdapterCounts], now_s: float
    ) -> PlacementRecord:
        """The record of the last pass. service: "namespace/name". counts: of gateways. now_s: steady."""
        adapters = []
        for name, wanted in sorted(self.plan.adapters.items()):
            failure = self.backoff.get(name)
            adapters.append(
                AdapterRecord(
                    name.rpartition("@")[0],
                    name,
                    wanted.copies,
                    wanted.is_met,
                    wanted.reason,
                    counts.get(name, AdapterCounts()),
                    self.demand.get(name, AdapterDemand()),
                    {pod: each.message for pod, each in self.errors.get(name, {}).items()},
                    max(0.0, failure.retry_at_s - now_s) if failure else 0.0,
                )
            )
        return PlacementRecord(
            service, self.at_s, self.replicas, tuple(adapters), self.plan.loads, self.plan.unloads,
            self.num_loads, self.num_failed_loads, self.num_unloads,
        )  # fmt: skip

    def observe(self, change: Change, now_s: float) -> None:
        """Remember the outcome of a change, and log it. now_s: steady time."""
        name, failure = change.engine_name, change.failure
        self._log(change)
        if change.kind == "unload":
            self.num_unloads += failure is None
            return
        self.lost.discard(name)
        if failure is None:
            self.num_loads += 1
            if name in self.errors:
                self._observe_copy(name, change.pod.name)
            return
        self.num_failed_loads += 1
        if failure.kind == "Unreachable":  # the pod is gone, or will be soon
            return
        self.backoff = after_failure(self.backoff, name, failure.message, now_s)
        error = LoadError(failure.reason, failure.message, is_final=failure.kind == "Refused")
        self.errors.setdefault(name, {})[change.pod.name] = error

    def _note_lost(self, counts: Mapping[str, AdapterCounts]) -> None:
        """Note versions that a gateway has failed to load since the last pass: their files may be gone."""
        before = self.load_failures
        now = {name: each.load_failures for name, each in counts.items()}
        if before is not None:
            self.lost |= {name for name, number in now.items() if number > before.get(name, 0)}
        self.lost -= {name for replica in self.replicas for name in replica.copies}
        self.load_failures = now

    def _log(self, change: Change) -> None:
        failure, wanted = change.failure, self.plan.adapters.get(change.engine_name)
        reason = failure.message if failure else wanted.reason if wanted else None
        about_it = service_fields(
            change.pod.service_key,
            adapter=change.engine_name,
            pod=change.pod.name,
            code=failure.reason if failure else None,
            reason=reason,
        )
        outcome = f"{'not ' if failure else ''}{change.kind}ed"
        logger.log(
            logging.WARNING if failure else logging.INFO, "adapter %s", outcome, extra=about_it
        )

    def _observe_copy(self, name: str, pod: str) -> None:
        """Record that a pod has read a version whose load failed before.

        The first copy shows that its files are good now: the other pods are asked again at once.
        """
        is_first = name not in self._resident()
        self.errors[name] = {p: error for p, error in self.errors[name].items() if p != pod}
        if is_first or not self.errors[name]:
            self.backoff = after_success(self.backoff, name)
        if not self.errors[name]:
            del self.errors[name]

    def _resident(self) -> frozenset[str]:
        """Versions with failed loads of which a pod had a copy at the last pass."""
        return frozenset(
            name
            for replica in self.replicas
            for name in replica.copies.keys() & self.errors.keys()
            if replica.copies[name].state == "Resident"
        )

    def _unreadable(self, resident: frozenset[str]) -> frozenset[str]:
        """Versions that engines refuse and none has. They are tried again only where a slot is free.

        So a broken adapter never takes the slot of another one.
        """
        return frozenset(
            name
            for name, by_pod in self.errors.items()
            if name not in resident and any(each.is_final for each in by_pod.values())
        )

    def _restore(self, inputs: ServiceInputs, now_s: float) -> None:
        """Take over the failures of versions that this operator sees for the first time."""
        names = frozenset(version.engine_name for version in inputs.versions)
        for name in (inputs.errors.keys() & names) - self.known - self.backoff.keys():
            self.errors[name] = dict(inputs.errors[name])
            message = next(iter(self.errors[name].values())).message
            self.backoff = after_failure(self.backoff, name, message, now_s)
        self.known = names

    def _forget(self, inputs: ServiceInputs, now_s: float) -> None:
        """Forget failures that say nothing about the next load.

        Those are failures of pods that have a copy now, and old ones of versions that no adapter has: one
        that is deleted and created again has not changed. A refusal is forgotten with its pod, so that the
        pod in its place is asked at once. A load without an answer is not, as it may have ended the engine.
        If another pod has a copy, the files are good: a failure that is no refusal is forgotten when the
        back-off is over.
        """
        names = {version.engine_name for version in inputs.versions}
        self.backoff = keep_recent(self.backoff, names.__contains__, now_s)
        self.lost &= names
        waiting = blocked(self.backoff, now_s)
        holders: dict[str, set[str]] = {}
        for (_, pod), copies in inputs.listed.items():
            for name in copies.keys() & self.errors.keys():
                if copies[name].state == "Resident":
                    holders.setdefault(name, set()).add(pod)
        for name, by_pod in list(self.errors.items()):
            left = {
                pod: error
                for pod, error in by_pod.items()
                if pod in inputs.ready or not pod or not error.is_final
            }
            if name in holders:
                left = {
                    pod: error
                    for pod, error in left.items()
                    if pod and pod not in holders[name] and (error.is_final or name in waiting)
                }
            if name in self.backoff and left:
                self.errors[name] = left
            else:
                del self.errors[name]
                self.backoff = after_success(self.backoff, name)

    def _start(self, inputs: ServiceInputs) -> None:
        if not self.plan.loads and not self.plan.unloads:
            return
        pods = {pod.name: pod for pod in inputs.pods.values()}
        paths = {version.engine_name: version.engine_path for version in inputs.versions}
        for name, pod in self.plan.unloads:
            self.changes.start(Change("unload", pods[pod], name))
        for name, pod in self.plan.loads:
            self.changes.start(Change("load", pods[pod], name, paths[name]))
