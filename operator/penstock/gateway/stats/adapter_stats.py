"""Counts requests for adapters, by service and version."""

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from penstock.core.adapters.demand import AdapterCounts
from penstock.core.canary.arm import NO_REQUESTS, Arm, ArmCounter
from penstock.gateway.limits.keyed_count import KeyedCount
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.stats.first_answers import FirstAnswers


class AdapterStats:
    """Counts the requests for one version of an adapter since this process started.

    became_idle: called when its last request at a pod ends, or none is queued any more. pods: its requests at
    each engine pod now. queued: requests that wait for room on an engine that has it. arm: canary statistics,
    while there are two versions. first_answers: of session-affinity keys, likewise.
    """

    def __init__(self, became_idle: Callable[[], None]) -> None:
        self._became_idle = became_idle
        self.arm: ArmCounter | None = None
        self.first_answers = FirstAnswers()
        self.arrivals = self.work_tokens = self.misses = self.failed = 0
        self.loads = self.load_failures = self.waiting = self.queued = 0
        self.load_s = 0.0
        self.pods = KeyedCount()

    def count_load(self, took_s: float, *, is_failed: bool) -> None:
        """Count a load that has ended."""
        if is_failed:
            self.load_failures += 1
        else:
            self.loads += 1
            self.load_s += took_s

    @contextmanager
    def hold_waiting(self) -> Iterator[None]:
        """Count a request that waits for a copy while the block runs."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    @contextmanager
    def hold_copy(self, pod: str) -> Iterator[None]:
        """Count a request at the pod "namespace/name" while the block runs."""
        try:
            with self.pods.hold(pod):
                yield
        finally:
            if not self.pods.count(pod):
                self._became_idle()

    @contextmanager
    def hold_queued(self) -> Iterator[None]:
        """Count a request in the admission queue while the block runs."""
        self.queued += 1
        try:
            yield
        finally:
            self.queued -= 1
            if not self.queued:
                self._became_idle()

    def count_claims(self, pod: str) -> int:
        """Return the requests that need the copy on a pod: those there, and queued ones, which may come."""
        return self.pods.count(pod) + self.queued

    def counts(self) -> AdapterCounts:
        """Return all counts."""
        return AdapterCounts(
            self.arrivals,
            self.work_tokens,
            self.misses,
            self.loads,
            self.load_failures,
            self.failed,
            self.load_s,
            self.pods.total,
            self.waiting + self.queued,
        )


@dataclass(frozen=True, slots=True)
class ClaimedCopies(Container[str]):
    """The versions that requests of this gateway need on a pod. stats: of the service, by name in engines."""

    stats: Mapping[str, AdapterStats]
    pod: str

    def __contains__(self, engine_name: object) -> bool:
        stats = self.stats.get(engine_name) if isinstance(engine_name, str) else None
        return stats is not None and stats.count_claims(self.pod) > 0


class AdapterStatsRegistry:
    """The counts of every version that had requests, by service "namespace/name" and name in engines.

    listeners: called with the service when the last request for a version at a pod ends, or none is queued
    any more.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self._by_service: dict[str, dict[str, AdapterStats]] = {}

    def get(self, adapter: Adapter) -> AdapterStats:
        """Return the counts of the adapter's version, empty ones if it is new."""
        versions = self._by_service.setdefault(adapter.service, {})
        stats = versions.get(adapter.engine_name)
        if stats is None:
            stats = versions[adapter.engine_name] = AdapterStats(
                partial(self._note_idle, adapter.service)
            )
        if not adapter.is_mixed:
            stats.arm = None
        elif stats.arm is None:
            stats.arm = ArmCounter()
        return stats

    def of_service(self, service: str) -> Mapping[str, AdapterStats]:
        """Return the counts of a service's adapters, by name in engines."""
        return self._by_service.get(service, {})

    def arms(self, snapshot: Snapshot) -> dict[str, dict[str, Arm]]:
        """Return canary statistics by version of the adapters with two versions, by key of the rollout."""
        return {
            adapter.rollout_key: {
                name: self._arm(adapter.service, name) for name in adapter.engine_names
            }
            for adapter in snapshot.adapters
            if adapter.is_mixed
        }

    def _note_idle(self, service: str) -> None:
        for listener in self.listeners:
            listener(service)

    def _arm(self, service: str, engine_name: str) -> Arm:
        stats = self._by_service.get(service, {}).get(engine_name)
        return NO_REQUESTS if stats is None or stats.arm is None else stats.arm.snapshot()

    def report(self, snapshot: Snapshot) -> dict[str, dict[str, AdapterCounts]]:
        """Report the counts of the snapshot's adapters, and drop those of other versions."""
        if self._by_service:
            current = {(each.service, n) for each in snapshot.adapters for n in each.engine_names}
            kept = {
                service: {n: stats for n, stats in versions.items() if (service, n) in current}
                for service, versions in self._by_service.items()
            }
            self._by_service = {service: versions for service, versions in kept.items() if versions}
        return {
            service: {name: stats.counts() for name, stats in versions.items()}
            for service, versions in self._by_service.items()
        }
