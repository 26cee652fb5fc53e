"""Penstock's rule: the operator's placement and the gateway's routing, from penstock.core."""

from collections import deque

from penstock.core.adapters.demand import AdapterDemand, DemandState, estimate_demand
from penstock.core.adapters.place import place
from penstock.core.adapters.route import (
    AdapterDecision,
    DrainCopy,
    Load,
    Refuse,
    Send,
    Wait,
    route_adapter,
)
from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.pool import Pool, Rule
from penstock.sim.request import Request


class Penstock(Rule):
    """Penstock's rule with one gateway and one operator, both with the current state of the pods."""

    tick_s = 2.0

    def __init__(self) -> None:
        self._state: DemandState | None = None
        self._demand: dict[str, AdapterDemand] = {}
        self._waiting: dict[str, deque[Request]] = {}  # by adapter, in order of the oldest request

    def start(self, pool: Pool) -> None:
        super().start(pool)
        self._pods = {pod.name: pod for pod in pool.pods}
        self._versions = {version.engine_name: version for version in pool.versions}

    def arrived(self, request: Request) -> None:
        name = request.adapter
        if name in self._waiting or not isinstance(self._route(request), Send | Refuse):
            self._waiting.setdefault(name, deque()).append(request)

    def freed(self, pod: AdapterPod, name: str) -> None:
        if name in self._waiting:
            self._retry(name)
        for waiting in list(self._waiting):
            decision = self._retry(waiting)
            if isinstance(decision, Wait) and decision.pod is None:
                return  # no pod can load anything now

    def _retry(self, name: str) -> AdapterDecision | None:
        """Route the waiting requests of an adapter. Returns the decision that stopped it."""
        requests = self._waiting[name]
        while requests:
            decision = self._route(requests[0])
            if not isinstance(decision, Send | Refuse):
                return decision
            requests.popleft()
        del self._waiting[name]
        return None

    def tick(self) -> None:
        """The operator's placement loop."""
        pool = self.pool
        self._state = estimate_demand(pool.counts, self._state, pool.clock.now)
        self._demand = dict(self._state.demand)
        plan = place(pool.versions, [pod.view() for pod in pool.pods], self._demand)
        for name, pod in plan.unloads:
            self._pods[pod].unload(name)
        for name, pod in plan.loads:
            self._pods[pod].load(name)

    def _route(self, request: Request) -> AdapterDecision:
        """Decide about a request, and do it."""
        name = request.adapter
        waited_s = self.pool.clock.now - request.arrival_s
        views = [pod.view() for pod in self.pool.pods]
        decision = route_adapter(name, views, self._versions, self._demand, waited_s)
        match decision:
            case Send(pods):
                by_pod = {view.pod: view for view in views}
                able = [by_pod[pod] for pod in pods]
                # Prompts share nothing here, so the least busy engine is where a request costs least.
                chosen = min(able, key=lambda replica: replica.load)
                self._pods[chosen.pod].submit(request)
            case Load(pod, evict, _):
                if evict is not None:
                    self._pods[pod].unload(evict)
                self._pods[pod].load(name)
            case Refuse():
                request.outcome = "shed"
                self.pool.ended(request)
            case Wait() | DrainCopy():  # the pool of the simulator drains no copies
                pass
        return decision
