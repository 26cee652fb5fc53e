"""State shared by all requests of a gateway."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.clients.machine.clock import monotonic, unix_time
from penstock.clients.machine.logs import fields
from penstock.core.admission.engines import Engines
from penstock.gateway.adapters.copies import AdapterCopies
from penstock.gateway.admission.queues import AdmissionQueues
from penstock.gateway.limits.keyed_count import KeyedCount
from penstock.gateway.limits.request_allocation import RequestLimits
from penstock.gateway.limits.retry_budget import RetryBudget
from penstock.gateway.mirroring.request_mirror import RequestMirror
from penstock.gateway.quotas.peers import GatewayPeers
from penstock.gateway.quotas.quotas import Quotas
from penstock.gateway.quotas.store import Store
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.state.batch_server import BatchServer
from penstock.gateway.state.endpoint_state import EndpointStates
from penstock.gateway.state.external_providers import ExternalProviders
from penstock.gateway.state.response_owners import ResponseOwners
from penstock.gateway.state.wake_calls import WakeCalls
from penstock.gateway.stats.registry import StatsRegistry
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.tenants.authenticator import Authenticator
from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.tenant_set import TenantSet
from penstock.gateway.tenants.token_reviews import Review, no_review
from penstock.gateway.upstream.unanswered import UnansweredAttempts
from penstock.gateway.upstream.upstream import Upstream
from penstock.observability.metrics.gateway import ENDPOINT_STATE

if TYPE_CHECKING:
    from penstock.gateway.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class GatewayState:
    """State of one gateway."""

    snapshots: SnapshotStore
    upstream: Upstream
    settings: GatewaySettings
    metrics: Metrics
    retry_budget: RetryBudget
    now: Callable[[], float]  # the monotonic clock
    tracer: "RequestTracer | None" = None  # set if traces are exported
    review: Review = no_review  # of ServiceAccount tokens
    quota_store: Store | None = None  # of limits that gateways share
    cancel_scopes: set[CancellationScope] = field(default_factory=set)
    # open_requests, waiting_requests: numbers by service
    open_requests: KeyedCount = field(default_factory=KeyedCount)
    waiting_requests: KeyedCount = field(default_factory=KeyedCount)
    wake_calls: WakeCalls = field(default_factory=WakeCalls)
    unanswered: UnansweredAttempts = field(default_factory=UnansweredAttempts)
    response_owners: ResponseOwners = field(default_factory=ResponseOwners)
    authenticator: Authenticator = field(init=False)
    batch_server: BatchServer | None = None  # None: files and batches are not served
    endpoints: EndpointStates = field(init=False)
    engines: Engines = field(default_factory=Engines)
    stats: StatsRegistry = field(init=False)
    admission_queues: AdmissionQueues = field(init=False)
    adapters: AdapterCopies = field(init=False)
    mirror: RequestMirror = field(init=False)
    limits: RequestLimits = field(init=False)
    providers: ExternalProviders = field(init=False)
    quotas: Quotas = field(init=False)
    peers: GatewayPeers = field(default_factory=GatewayPeers)
    is_draining: bool = False
    loop_lag_s: float = 0.0  # how late the event loop is
    _scraped: Snapshot | None = None  # the snapshot at the last scrape

    def __post_init__(self) -> None:
        self.endpoints = EndpointStates(self._note_ejection)
        settings = self.settings
        self.authenticator = Authenticator(
            BearerTokens(self.review, audience=settings.service_account_audience, now=self.now),
            settings.trusted_proxies,
            require_tenants=settings.require_tenants,
        )
        self.authenticator.tenants.listeners.append(self._note_tenants)
        self.limits = RequestLimits(settings.max_connections, settings.max_held_body_bytes)
        self.quotas = Quotas(
            self.metrics.tenants,
            self.now,
            unix_time,
            store=self.quota_store,
            num_gateways=lambda: self.peers.count,
            retention_s=settings.usage_retention_days * 86_400,
        )
        self.mirror = RequestMirror(self.settings, self.metrics, self.now)
        self.stats = StatsRegistry(self.now)
        self.metrics.held_body_bytes.set_function(
            lambda: self.limits.body_bytes.held + self.mirror.held_bytes
        )
        self.metrics.held_answer_bytes.set_function(lambda: self.upstream.held_bytes)
        self.adapters = AdapterCopies(
            self.snapshots, self.stats.adapters, self._note_adapter_load, self.now
        )
        self.snapshots.listeners.append(self.adapters.update)
        residency = self.adapters.residency
        self.admission_queues = AdmissionQueues(
            self.settings, self.engines, self.endpoints.ejected, residency.holders, self.now
        )
        residency.listeners.append(self.admission_queues.note_copies)
        self.snapshots.listeners.append(self.admission_queues.update)
        self.providers = ExternalProviders(self.settings)
        self.snapshots.listeners.append(self.providers.update)
        self.snapshots.listeners.append(self._keep_engines)
        self.snapshots.listeners.append(self.unanswered.update)
        self.snapshots.listeners.append(lambda _: self.metrics.snapshots.inc())

    def update_metrics(self) -> None:
        """Set the gauges that are made at each scrape, and adapt the series to a new snapshot."""
        metrics, snapshot = self.metrics, self.snapshots.current
        metrics.tenants.set_limits_used(self.quotas.limits_used())
        if (confirmed_s := self.snapshots.confirmed_s) is not None:
            metrics.snapshot_age_s.set(monotonic() - confirmed_s)
        if not self.snapshots.is_synced:
            return
        if snapshot is not self._scraped:
            self._scraped = snapshot
            self._adapt_series(snapshot)
        now_s = self.now()
        for service in snapshot.services:
            num_ejected = len(self.endpoints.ejected(service.endpoints, now_s))
            num_ready = len(service.endpoints)
            states = num_ready - num_ejected, num_ejected, len(service.sides) - num_ready
            for state, count in zip(ENDPOINT_STATE.values, states, strict=True):
                metrics.endpoints.labels(service.key, state).set(count)

    def _adapt_series(self, snapshot: Snapshot) -> None:
        """Create the counters of what the snapshot has, and drop the series of what it has not.

        Those that a request of a deleted service creates later are dropped with the next snapshot.
        """
        revisions = snapshot.revisions()
        for service in snapshot.services:
            self.metrics.create_series(
                service.key,
                revisions[service.key],
                has_objectives=service.objectives is not None,
            )
        routes = {route.key for route in snapshot.routes}
        adapters = {(each.service, each.name) for each in snapshot.adapters}
        self.metrics.remove_stale_series(revisions, routes, adapters)
        self.metrics.routes.keep_only({external.key for external in snapshot.externals})

    def _keep_engines(self, snapshot: Snapshot) -> None:
        """Forget the engines that are gone, and what those had cached that are not ready."""
        pods = {pod for service in snapshot.services for pod in service.sides}
        ready = {each.pod for service in snapshot.services for each in service.endpoints}
        self.engines.keep_only(pods, ready)

    def _note_adapter_load(self, adapter: Adapter, took_s: float, is_failed: bool) -> None:
        self.stats.adapters.get(adapter).count_load(took_s, is_failed=is_failed)
        self.metrics.adapters.count_load(adapter, took_s, is_failed=is_failed)

    def _note_tenants(self, tenants: TenantSet) -> None:
        is_open = self.authenticator.is_open
        if is_open:
            logger.warning(
                "the gateway is open: the cluster has no Tenant, so that anybody may use every model"
            )
        self.metrics.open.set(is_open)
        self.metrics.remove_stale_tenants(tenants.by_name)
        self.quotas.accounts.keep_only(tenants.by_name.keys())

    def _note_ejection(self, pod: str) -> None:
        services = self.snapshots.current.services
        service = next((each.key for each in services if pod in each.sides), "")
        self.metrics.ejections.labels(service).inc()
        logger.warning(
            "%s gets no requests for a while: it failed several in a row", pod,
            extra=fields(service=service),
        )  # fmt: skip

    @property
    def waiting(self) -> int:
        """Number of requests of all services that wait for an engine."""
        return self.waiting_requests.total
