"""The request statistics of all services, and the report of them that the operator scrapes."""

from collections.abc import Callable

from penstock.clients.machine.clock import unix_time
from penstock.core.observed.gateway_report import VERSION, GatewayReport
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.stats.adapter_stats import AdapterStatsRegistry
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.stats.service_stats import ServiceStats


class StatsRegistry:
    """The request statistics of each service since this process started.

    now: the monotonic clock. adapters: those of adapters.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._started_s = unix_time()
        self._by_service: dict[str, ServiceStats] = {}
        self.adapters = AdapterStatsRegistry()

    def record(
        self,
        service: Service,
        request: InferenceRequest,
        arrived_s: float,
        *,
        client: str = "",
        tenant: str | None = None,
        key: bytes | None = None,
        adapter: Adapter | None = None,
    ) -> RequestRecord:
        """Count a request that arrived, and return its record.

        key: its session-affinity key. adapter: the one that it is for. The other arguments are the record's.
        """
        is_compared = service.is_mixed or (adapter is not None and adapter.is_mixed)
        stats = self.get(service.key)
        stats.objectives = service.objectives
        return RequestRecord(
            stats,
            self._now,
            request,
            arrived_s,
            client=client,
            tenant=tenant,
            key=key if is_compared else None,
            adapter=None if adapter is None else self.adapters.get(adapter),
        )

    def get(self, service: str) -> ServiceStats:
        """Return the statistics of the service "namespace/name", empty ones if it is new."""
        return self._by_service.setdefault(service, ServiceStats())

    def report(self, snapshot: Snapshot) -> GatewayReport:
        """Report the statistics of the snapshot's services, and drop those of other services."""
        current = [
            (service, self._by_service.get(service.key) or ServiceStats())
            for service in snapshot.services
        ]
        external = {each.service_key for each in snapshot.externals}
        self._by_service = {
            key: self._by_service[key] for key in external & self._by_service.keys()
        }
        self._by_service |= {service.key: stats for service, stats in current}
        for service, stats in current:
            stats.keep_only(service.sides)
        at_s, now_s = unix_time(), self._now()
        return GatewayReport(
            VERSION,
            self._started_s,
            {service.key: stats.reading(at_s, now_s) for service, stats in current},
            {service.key: stats.arms() for service, stats in current if service.is_mixed}
            | self.adapters.arms(snapshot),
            {service.key: service.generation for service, _ in current}
            | _adapter_generations(snapshot),
            {route.key: route.generation for route in snapshot.routes},
            self.adapters.report(snapshot),
        )


def _adapter_generations(snapshot: Snapshot) -> dict[str, int]:
    """Generations of the adapters' traffic and pools that requests follow."""
    of_rollouts = {
        each.rollout_key: each.generation for each in snapshot.adapters if each.generation
    }
    return of_rollouts | {
        each.pool_key: each.pool_generation for each in snapshot.adapters if each.pool_generation
    }
