"""State shared by all requests of a gateway."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.gateway.admission_queues import AdmissionQueues
from penstock.gateway.body_memory import BodyMemory
from penstock.gateway.cancellation import CancellationScope
from penstock.gateway.endpoint_state import EndpointStates
from penstock.gateway.keyed_count import KeyedCount
from penstock.gateway.metrics import Metrics
from penstock.gateway.mirroring import RequestMirror
from penstock.gateway.retry_budget import RetryBudget
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot_store import SnapshotStore
from penstock.gateway.stats_registry import StatsRegistry
from penstock.gateway.upstream import Upstream


@dataclass(slots=True)
class GatewayState:
    """State of one gateway.

    now: the monotonic clock. open_requests, waiting_requests: numbers by service.
    """

    snapshots: SnapshotStore
    upstream: Upstream
    settings: GatewaySettings
    metrics: Metrics
    retry_budget: RetryBudget
    now: Callable[[], float]
    endpoints: EndpointStates = field(default_factory=EndpointStates)
    cancel_scopes: set[CancellationScope] = field(default_factory=set)
    open_requests: KeyedCount = field(default_factory=KeyedCount)
    waiting_requests: KeyedCount = field(default_factory=KeyedCount)
    stats: StatsRegistry = field(init=False)
    admission_queues: AdmissionQueues = field(init=False)
    mirror: RequestMirror = field(init=False)
    bodies: BodyMemory = field(init=False)
    is_draining: bool = False

    def __post_init__(self) -> None:
        self.bodies = BodyMemory(self.settings.max_held_body_bytes)
        self.mirror = RequestMirror(self.settings, self.metrics, self.bodies, self.now)
        self.stats = StatsRegistry(self.now)
        self.metrics.held_body_bytes.set_function(lambda: self.bodies.held_bytes)
        self.metrics.held_answer_bytes.set_function(lambda: self.upstream.held_bytes)
        self.admission_queues = AdmissionQueues(self.settings, self.endpoints.ejected, self.now)
        self.snapshots.listeners.append(self.admission_queues.update)

    @property
    def waiting(self) -> int:
        """Number of requests of all services that wait for an engine."""
        return self.waiting_requests.total
