"""Simulated gateway of one service, with the production code of admission and routing."""

from collections.abc import Callable, Mapping
from random import Random

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.decision import Reject
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.engines import Engines
from penstock.core.admission.placement import Placement
from penstock.core.routing.pick import Side
from penstock.core.routing.weights import choose_by_key, choose_by_weight
from penstock.core.scaling.histogram import HistogramCounter
from penstock.core.scaling.signals import GatewayReading, attended_tokens
from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.request import Request
from penstock.sim.routing.penstock import Penstock
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView
from penstock.sim.side_queue import SideQueue
from penstock_engine.contract.metric_types import BETWEEN_TOKENS_S, FIRST_TOKEN_S

STABLE = Side("stable")
# Expected output before the first request has ended, and the weight of the old mean at each update.
FIRST_OUTPUT_TOKENS, MEMORY = 256.0, 0.98
# Attempts per request. Another engine is tried if one crashes before the first token.
MAX_TRIES = 3


class Gateway:
    """Simulated gateway.

    requests: all arrivals, in order. weights: traffic weight by side. sides: side of each pod, removed pods
    included.
    """

    def __init__(
        self,
        spec: AdmissionSpec,
        clock: Clock,
        random: Random,
        finished: Callable[[Request], None] = lambda request: None,
        tpot_s: float | None = None,
        picker: Picker | None = None,
        keeps_side: bool = False,
        prefix_block_tokens: int = 0,
    ) -> None:
        """finished: called once per request, whatever its outcome. tpot_s: objective sent to engines.

        picker: picks the engine of a request; None: Penstock's own. keeps_side: whether the requests of a
        conversation go to one side. prefix_block_tokens: as engines have it.
        """
        self.requests: list[Request] = []
        self._finished = finished
        self._clock = clock
        self._random = random
        self._spec = spec
        self._engine_tpot_s = tpot_s
        self._all = Engines()
        self._picker = picker or Penstock()
        self._picker.attach(self._all)
        self._keeps_side = keeps_side
        self._prefix_block_tokens = prefix_block_tokens
        self._scrapes = False
        self._queues = {STABLE: SideQueue(spec)}
        self.weights: Mapping[Side, int] = {STABLE: 100}
        self.sides: dict[str, Side] = {}
        self._engines: dict[str, Engine] = {}
        # Views by pod, also of removed pods, whose requests go on
        self._views: dict[str, EngineView] = {}
        self._sent: dict[str, tuple[Request, Waiting, Placement]] = {}
        self._output_tokens = FIRST_OUTPUT_TOKENS
        self._expects_expiry = False
        self._prompt_tokens = self._ended = self._shed = self._failed = 0
        self._ended_tokens = self._attended_tokens = self._late = 0
        self._ttft_s, self._tpot_s = (
            HistogramCounter(FIRST_TOKEN_S),
            HistogramCounter(BETWEEN_TOKENS_S),
        )

    def arrive(self, request: Request) -> None:
        self.requests.append(request)
        self._prompt_tokens += request.prompt_tokens
        self._enqueue(request)

    def split(self, weights: Mapping[Side, int]) -> None:
        """Set the traffic weights. Requests queued for a side without weight are queued again."""
        self.weights = weights
        for side in weights.keys() - self._queues.keys():
            self._queues[side] = SideQueue(self._spec)
        for side in self._queues.keys() - weights.keys():
            self._empty(self._queues[side])

    def add_engine(self, pod: str, engine: Engine, side: Side = STABLE) -> None:
        queue = self._queues.setdefault(side, SideQueue(self._spec))
        self._engines[pod] = engine
        load = queue.loads[pod] = self._all.load(pod, queue.kind, engine.profile.kv_tokens)
        self._add_view(EngineView(pod, load, engine))
        self.sides[pod] = side
        queue.admission.requeue_late()
        for other in list(self._queues.values()):
            if not other.loads:
                self._empty(other)
        self._dispatch()

    def remove_engine(self, pod: str) -> None:
        """Send no new requests to this pod. Its running requests go on."""
        queue = self._queues[self.sides[pod]]
        del self._engines[pod], queue.loads[pod]
        self._all.keep_only(self._engines.keys(), self._engines.keys())
        self._picker.engine_removed(pod, self._clock.now)
        if not queue.loads:
            self._empty(queue)

    def lost(self, requests: list[Request]) -> None:
        """Handle a crash: requests with a first token fail, the others are queued again."""
        for request in requests:
            self._settle(request)
            if request.first_token_s is not None or request.num_tries >= MAX_TRIES:
                self._fail(request)
            else:
                self._enqueue(request)

    def started(self, request: Request) -> None:
        """Record the first token of a request."""
        self._views[request.pod].unanswered -= 1
        self._ttft_s.add(self._clock.now - request.arrival_s)
        self._sent[request.request_id][2].first_token(self._clock.now)
        self._picker.first_token(request, self._clock.now)
        self._dispatch()

    def ended(self, request: Request) -> None:
        request.outcome = "ended"
        self._ended += 1
        assert request.first_token_s is not None
        self._late += request.first_token_s - request.arrival_s > self._spec.ttft_s
        self._ended_tokens += request.output_tokens
        self._attended_tokens += attended_tokens(request.prompt_tokens, request.output_tokens)
        self._output_tokens += (1 - MEMORY) * (request.output_tokens - self._output_tokens)
        self._tpot_s.add(request.tpot_s or 0.0)
        waiting = self._sent[request.request_id][1]
        tokens = request.prompt_tokens + request.output_tokens
        admission = self._queues[self.sides[request.pod]].admission
        admission.correct(request.requester, tokens - waiting.kv_tokens)
        self._all.note_cached(
            self._sent[request.request_id][2], request.prompt_tokens, request.cached_tokens
        )
        self._settle(request)
        self._finished(request)
        self._dispatch()

    def reading(self) -> GatewayReading:
        prefilling = [w for r, w, _ in self._sent.values() if r.first_token_s is None]
        queued = self._queued
        oldest_s = min((r.arrival_s for r in queued), default=self._clock.now)
        return GatewayReading(
            at_s=self._clock.now,
            queued=len(queued),
            queued_prompt_tokens=sum(r.prompt_tokens for r in queued),
            in_flight=len(self._sent),
            in_flight_prefill_tokens=round(sum(w.prefill_tokens for w in prefilling)),
            oldest_wait_s=self._clock.now - oldest_s,
            arrivals=len(self.requests),
            prompt_tokens=self._prompt_tokens,
            ended=self._ended,
            output_tokens=self._ended_tokens,
            attended_tokens=self._attended_tokens,
            late=self._late,
            shed=self._shed,
            failed=self._failed,
            ttft_s=self._ttft_s.histogram(),
            tpot_s=self._tpot_s.histogram(),
        )

    @property
    def _queued(self) -> list[Request]:
        return [request for queue in self._queues.values() for request in queue.queued.values()]

    def _draw_queue(self, request: Request) -> SideQueue:
        """Draw a side by weight or conversation: one without engines gets nothing while another has some."""
        sides = [(s, w) for s, w in self.weights.items() if self._queues[s].loads]
        sides = sides or list(self.weights.items())
        if len(sides) == 1:
            return self._queues[sides[0][0]]
        if self._keeps_side and (key := request.conversation_key) is not None:
            return self._queues[choose_by_key(sides, key)]
        return self._queues[choose_by_weight(sides, self._random.random())[0]]

    def _empty(self, queue: SideQueue) -> None:
        queued, queue.queued = queue.queued, {}
        for request in queued.values():
            queue.admission.remove(request.request_id)
            self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        queue = self._draw_queue(request)
        attributes = request.attributes(self._prefix_block_tokens)
        loads = list(queue.loads.values())
        cached_tokens = self._all.reported_tokens(
            attributes.prefix, request.prompt_tokens, queue.loads.keys()
        )
        waiting = Waiting(
            request.request_id,
            request.arrival_s,
            request.arrival_s + self._spec.ttft_s,
            request.prompt_tokens,
            request.prompt_tokens + self._output_tokens / 2,
            attributes,
            requester=request.requester,
            cached_tokens=cached_tokens,
        )
        decision = queue.admission.add(waiting, self._clock.now, loads)
        if isinstance(decision, Reject):
            self._shed_one(request)
            return
        queue.queued[request.request_id] = request
        if (displaced := decision.displaced) is not None:
            self._shed_one(queue.queued.pop(displaced.waiting.request_id))
        self._dispatch()
        if not self._expects_expiry and self._queued:
            self._await_expiry()

    def _dispatch(self) -> None:
        for queue in self._queues.values():
            while queue.queued:
                engines = list(queue.loads.values())
                found = queue.admission.next(engines, self._clock.now)
                if found is None:
                    break
                request = queue.queued.pop(found.waiting.request_id)
                self._send(request, found.waiting, found.engines)

    def _send(self, request: Request, waiting: Waiting, fitting: list[EngineLoad]) -> None:
        now, views = self._clock.now, [self._views[load.pod] for load in fitting]
        view = self._picker.pick(request, waiting, views, now, self._random.random())
        pod, placement = view.pod, self._all.send(waiting, view.load, now)
        request.pod = pod
        request.num_tries += 1
        request.sent_s, request.predicted_s = now, self._picker.predicted_s(request)
        request.ahead, request.beside = view.unanswered, float(view.requests)
        view.tokens += round(waiting.kv_tokens)
        view.requests += 1
        view.unanswered += 1
        self._sent[request.request_id] = (request, waiting, placement)
        self._picker.sent(request, now)
        if not self._engines[pod].submit(request, self._engine_tpot_s):
            self._settle(request)
            self._fail(request)

    def _settle(self, request: Request) -> None:
        """Remove an ended request from the load of its engine."""
        _, waiting, placement = self._sent.pop(request.request_id)
        view = self._views[request.pod]
        view.tokens -= round(waiting.kv_tokens)
        view.requests -= 1
        request.beside = (request.beside + view.requests) / 2
        if request.first_token_s is None:
            view.unanswered -= 1
        placement.release(self._clock.now)
        self._picker.ended(request, self._clock.now)

    def _add_view(self, view: EngineView) -> None:
        self._views[view.pod] = view
        self._picker.engine_added(view, self._clock.now)
        if self._picker.scrape_s and not self._scrapes:
            self._scrapes = True
            self._scrape()

    def _scrape(self) -> None:
        for pod in self._engines:
            self._views[pod].scrape()
        self._clock.schedule_at(self._clock.now + self._picker.scrape_s, self._scrape)

    def _await_expiry(self) -> None:
        """Check every second for requests that waited too long, while any request is queued."""
        self._expects_expiry = bool(self._queued)
        if self._queued:
            self._clock.schedule_at(self._clock.now + 1.0, self._expire)

    def _expire(self) -> None:
        for queue in self._queues.values():
            for waiting in queue.admission.expired(self._clock.now):
                self._shed_one(queue.queued.pop(waiting.request_id))
        self._await_expiry()

    def _shed_one(self, request: Request) -> None:
        request.outcome = "shed"
        request.end_s = self._clock.now
        self._shed += 1
        self._finished(request)

    def _fail(self, request: Request) -> None:
        request.outcome = "failed"
        request.end_s = self._clock.now
        self._failed += 1
        self._finished(request)
