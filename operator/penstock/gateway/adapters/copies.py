"""Chooses the engines that may answer a request for an adapter, or the load that has to come first."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.clients.pods.engine_adapters import EngineAdapters, EngineFailure
from penstock.core.adapters.demand import AdapterDemand, DemandState, estimate_demand
from penstock.core.adapters.load_failures import LoadFailure, is_refused_by_all
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.route import (
    DRAIN_AFTER_S,
    AdapterDecision,
    DrainCopy,
    Load,
    Refuse,
    Send,
    Wait,
    route_adapter,
)
from penstock.core.adapters.service_copies import ServiceCopies
from penstock.core.routing.pick import Endpoint
from penstock.gateway.adapters.failures import AdapterFailures
from penstock.gateway.adapters.loads import AdapterLoad, AdapterLoads, ObserveLoad
from penstock.gateway.adapters.polls import AdapterPolls
from penstock.gateway.adapters.residency import AdapterResidency
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.stats.adapter_stats import AdapterStatsRegistry, ClaimedCopies

# Interval at which the demand of a service's adapters is estimated again, for the choice of the copy that
# is unloaded for another.
DEMAND_INTERVAL_S = 5.0

# Seconds after which a client may ask again for an adapter whose files are being fetched.
FETCH_RETRY_S = 5.0

Tokens = Mapping[str, float]
# Endpoints that may answer; a load that has to come first; a reason to wait or to refuse; why engines
# refused the adapter, while they are not asked again.
Choice = tuple[Endpoint, ...] | AdapterLoad | Wait | Refuse | LoadFailure


class AdapterCopies:
    """The copies of all adapters. stats: of the requests for them. now: the monotonic clock."""

    def __init__(
        self,
        snapshots: SnapshotStore,
        stats: AdapterStatsRegistry,
        observe: ObserveLoad,
        now: Callable[[], float],
    ) -> None:
        self._snapshots = snapshots
        self._stats = stats
        self._now = now
        self._engines = EngineAdapters(now=now)
        self.residency = AdapterResidency(now)
        stats.listeners.append(self.residency.waiters.note_room)
        self.polls = AdapterPolls(self._engines, self.residency)
        self.failures = AdapterFailures(now)
        self.loads = AdapterLoads(
            self._engines, self.residency, self.polls, self.failures, observe, now
        )
        self._demand: dict[str, DemandState] = {}
        self._counted: dict[str, ServiceCopies] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Follow a new snapshot."""
        self.polls.update(snapshot)
        self.failures.update(snapshot)
        self._demand = {key: state for key, state in self._demand.items() if snapshot.get(key)}
        self._counted = {key: each for key, each in self._counted.items() if snapshot.get(key)}

    async def close(self) -> None:
        """End all polls and loads."""
        await self.polls.close()
        await self.loads.close()
        await self._engines.close()

    def resident(self, adapter: Adapter, endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
        """Return the endpoints that have the adapter in memory."""
        pods = [endpoint.pod for endpoint in endpoints]
        holders = self.residency.holders(pods, adapter.engine_name)
        return tuple(endpoint for endpoint in endpoints if endpoint.pod in holders)

    async def is_listed(self, adapter: Adapter, endpoint: Endpoint) -> bool:
        """Ask an engine whether it lists the adapter now."""
        runtime = self.polls.runtime(endpoint.pod)
        listed = await self._engines.list(adapter.namespace, endpoint.address, runtime)
        return not isinstance(listed, EngineFailure) and adapter.engine_name in listed.copies

    def choose(
        self,
        adapter: Adapter,
        service: Service,
        endpoints: Sequence[Endpoint],
        tokens: Tokens,
        waited_s: float,
    ) -> Choice:
        """Choose what a request does, while none of the endpoints has the adapter in memory.

        endpoints: those that may take the request, all of engines that take adapters. tokens: in flight,
        by pod. Returns the endpoint alone if its engine reads an evicted adapter again by itself.
        """
        if not adapter.is_available:
            return Refuse("its files are not fetched yet", retry_after_s=FETCH_RETRY_S)
        refusals = self.failures.find(adapter, endpoints)
        is_refused = is_refused_by_all(len(refusals), len(endpoints))
        if not is_refused:
            endpoints = [each for each in endpoints if each.pod not in refusals]
        decision = self._decide(adapter, service, endpoints, tokens, waited_s)
        if isinstance(decision, DrainCopy):
            self.residency.drain_copy(decision.pod, decision.engine_name)
            return Wait(decision.reason)
        if isinstance(decision, Wait | Refuse):
            return decision
        if isinstance(decision, Send):
            return tuple(each for each in endpoints if each.pod in decision.pods)
        (endpoint,) = (each for each in endpoints if each.pod == decision.pod)
        return self._load_or_send(adapter, endpoint, decision, refusals if is_refused else {})

    def _decide(
        self,
        adapter: Adapter,
        service: Service,
        endpoints: Sequence[Endpoint],
        tokens: Tokens,
        waited_s: float,
    ) -> AdapterDecision:
        """Decide as all gateways do. Arguments: those of `choose`, without engines that refuse to load it."""
        key, snapshot = service.key, self._snapshots.current
        replicas = self._replicas(service, endpoints, tokens)
        able = {endpoint.pod for endpoint in endpoints}
        rest = [each for each in service.endpoints if each.pod not in able]
        # Queued requests have claims too: otherwise two adapters that wait for the same busy engine would
        # unload each other.
        stats = self._stats.of_service(key)
        return route_adapter(
            adapter.engine_name,
            replicas,
            snapshot.adapter_versions(key),
            self._estimate_demand(key),
            waited_s,
            others=self._replicas(service, rest, tokens),
            shown_demand=snapshot.adapter_demand(key) if waited_s >= DRAIN_AFTER_S else {},
            counted=self._counted.setdefault(key, ServiceCopies()),
            claimed={each.pod: ClaimedCopies(stats, each.pod) for each in replicas},
        )

    def _load_or_send(
        self,
        adapter: Adapter,
        endpoint: Endpoint,
        decision: Load,
        refusals: Mapping[str, LoadFailure],
    ) -> Choice:
        """Do what was decided. refusals: by pod, if no engine is asked to load the adapter now."""
        copies = self.residency.copies(endpoint.pod) or {}
        if adapter.engine_name in copies and decision.evict is None:
            self.residency.note_resident(endpoint.pod, adapter.engine_name)
            return (endpoint,)
        if refusals:
            return min(refusals.values(), key=lambda failure: failure.retry_at_s)
        return AdapterLoad(adapter, endpoint, decision.evict)

    def _replicas(
        self, service: Service, endpoints: Iterable[Endpoint], tokens: Tokens
    ) -> list[AdapterReplica]:
        """Return those of the endpoints that take adapters and whose copies are known."""
        return [
            AdapterReplica(
                pod=endpoint.pod,
                slots=engine.slots,
                copies=copies,
                load=tokens.get(endpoint.pod, 0),
                loads_at_once=engine.loads_at_once,
                side="",  # routing does not compare sides
                draining_copies=self.residency.draining(endpoint.pod),
                backing_off_copies=self.residency.backing_off(endpoint.pod),
            )
            for endpoint in endpoints
            if (engine := service.lora_engines.get(endpoint.pod)) is not None
            and (copies := self.residency.copies(endpoint.pod)) is not None
        ]

    def _estimate_demand(self, service: str) -> Mapping[str, AdapterDemand]:
        state, now = self._demand.get(service), self._now()
        if state is None or now - state.at_s >= DEMAND_INTERVAL_S:
            counts = {n: stats.counts() for n, stats in self._stats.of_service(service).items()}
            shown = self._snapshots.current.adapter_demand(service)
            shown_per_s = {name: demand.requests_per_s for name, demand in shown.items()}
            state = self._demand[service] = estimate_demand(counts, state, now, shown_per_s)
        return state.demand
