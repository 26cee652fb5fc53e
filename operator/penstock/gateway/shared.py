"""State shared by all requests of a gateway."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.gateway.accounts import Accounts
from penstock.gateway.body_memory import BodyMemory
from penstock.gateway.fleet import Fleet
from penstock.gateway.guard import Guard
from penstock.gateway.keyed_count import KeyedCount
from penstock.gateway.lines import Lines
from penstock.gateway.load import Loads, RetryBudget
from penstock.gateway.metrics import Metrics
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.shadows import Shadows
from penstock.gateway.upstream import Upstream


@dataclass(slots=True)
class Shared:
    """State of one gateway. now: the monotonic clock. open_requests, waiting_requests: by service."""

    fleet: Fleet
    upstream: Upstream
    settings: GatewaySettings
    metrics: Metrics
    budget: RetryBudget
    now: Callable[[], float]
    loads: Loads = field(default_factory=Loads)
    guards: set[Guard] = field(default_factory=set)
    open_requests: KeyedCount = field(default_factory=KeyedCount)
    waiting_requests: KeyedCount = field(default_factory=KeyedCount)
    accounts: Accounts = field(init=False)
    lines: Lines = field(init=False)
    shadows: Shadows = field(init=False)
    bodies: BodyMemory = field(init=False)
    is_draining: bool = False

    def __post_init__(self) -> None:
        self.bodies = BodyMemory(self.settings.max_held_body_bytes)
        self.shadows = Shadows(self.settings, self.metrics, self.bodies, self.now)
        self.accounts = Accounts(self.now)
        self.metrics.held_body_bytes.set_function(lambda: self.bodies.held_bytes)
        self.metrics.held_answer_bytes.set_function(lambda: self.upstream.held_bytes)
        self.lines = Lines(self.settings, self.loads.ejected, self.now)
        self.fleet.listeners.append(self.lines.follow)

    @property
    def waiting(self) -> int:
        """Number of requests of all services that wait for an engine."""
        return self.waiting_requests.total
