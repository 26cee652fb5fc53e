"""Admission queue for the engines of one revision and cohort, in the order of deadlines."""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from itertools import count

from penstock.core.admission.admission import Admission
from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.decision import Reject
from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.engines import Engines
from penstock.core.admission.requester import ANYBODY, Requester
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.gateway.admission.reservation import Reservation
from penstock.gateway.apis.errors import RequestError

# Interval at which a non-empty queue is checked for changes that only time brings, such as the end of
# an ejection.
RECHECK_INTERVAL_S = 0.1

# Returns the pods that are ejected at a time, given the endpoints and the time.
EjectedPods = Callable[[Iterable[Endpoint], float], set[str]]
# Called with pods and the name of an adapter in engines; returns the pods that have it.
Holders = Callable[[Iterable[str], str], set[str]]
Grant = asyncio.Future[Reservation | Reject | None]


class RequestRefused(RequestError):
    """The request is refused, or waited too long."""

    def __init__(self, message: str, reason: str, retry_after_s: float) -> None:
        super().__init__(503, message, retry_after_s=max(1, round(retry_after_s)), reason=reason)

    @classmethod
    def of(cls, reject: Reject) -> "RequestRefused":
        """The refusal that admission control decided."""
        return cls(reject.message, reject.reason, reject.retry_after_s)


class AdmissionQueue:
    """Holds requests until an endpoint is predicted to compute their first token in time.

    engines: of all services. ejected: returns the pods to avoid while there are others. find_holders: returns
    those of the pods that have an adapter in memory. now: the monotonic clock.
    """

    def __init__(
        self,
        spec: AdmissionSpec,
        engines: Engines,
        ejected: EjectedPods,
        find_holders: Holders,
        now: Callable[[], float],
    ) -> None:
        self._admission = Admission(spec)
        self._engines = engines
        self._ejected = ejected
        self._find_holders = find_holders
        self._now = now
        self._kind = EngineKind()  # of all engines of the side
        self._endpoints: dict[str, Endpoint] = {}
        self._of_service: tuple[Endpoint, ...] = ()
        self._loads: dict[str, EngineLoad] = {}
        self._grants: dict[str, Grant] = {}
        self._serials = count()
        self._timer: asyncio.TimerHandle | None = None

    def update(
        self,
        spec: AdmissionSpec,
        endpoints: Iterable[Endpoint],
        of_service: Iterable[Endpoint] | None = None,
    ) -> None:
        """Set the objectives and the current endpoints. Without any, all waiting requests are released.

        of_service: the endpoints of all sides, which bound how many are ejected; None: there is one side.
        """
        endpoints = tuple(endpoints)
        self._of_service = endpoints if of_service is None else tuple(of_service)
        self._admission.spec = spec
        known, self._endpoints = self._loads, {e.pod: e for e in endpoints}
        self._loads = {pod: self._engines.load(pod, self._kind) for pod in self._endpoints}
        if not self._loads:
            self.close()
        elif self._loads.keys() - known.keys():
            self._admission.requeue_late()
            self.dispatch()

    def note_copies(self) -> None:
        """Look again at the requests for adapters, whose copies have changed."""
        if self._admission.adapters:
            self._admission.requeue_late()
            self.dispatch()

    def close(self) -> None:
        """Release all waiting requests without a reservation; they select another endpoint."""
        for grant in self._grants.values():
            if not grant.done():
                grant.set_result(None)

    async def reserve(
        self,
        arrived_s: float,
        prompt_tokens: float,
        kv_tokens: float,
        wait_s: float,
        while_waiting: AbstractContextManager[None],
        attributes: RequestAttributes,
        adapter: str = "",
        requester: Requester = ANYBODY,
        home: bytes | None = None,
    ) -> Reservation | None:
        """Reserve a slot on an endpoint, after waiting for one if necessary.

        arrived_s: when the request arrived, on the monotonic clock. wait_s: how long it may wait from
        now. while_waiting: entered only if it has to wait. attributes: of the request. adapter: its name in
        engines; empty: the request is for the base model. requester: whom it counts for. home: see
        `Waiting`. Returns None when the queue is closed, or its last endpoint or the last copy of the adapter
        is gone. Raises RequestRefused.
        """
        if requester.max_wait_s is not None:
            wait_s = min(wait_s, requester.max_wait_s)
        deadline_s = arrived_s + self._admission.spec.ttft_s
        name = str(next(self._serials))
        prefix = attributes.prefix.with_space(adapter)
        cached_tokens = self._engines.reported_tokens(prefix, prompt_tokens, self._loads.keys())
        waiting = Waiting(
            name, arrived_s, deadline_s, prompt_tokens, kv_tokens, attributes, adapter, requester,
            cached_tokens, home,
        )  # fmt: skip
        self._add(waiting)
        grant: Grant = asyncio.get_running_loop().create_future()
        self._grants[name] = grant
        reservation = None
        try:
            self.dispatch()
            if not grant.done():
                if refused := self._admission.refuse_to_wait(waiting, list(self._loads.values())):
                    raise RequestRefused.of(refused)
                with while_waiting:
                    async with asyncio.timeout(wait_s):
                        await grant
            result = grant.result()
            if isinstance(result, Reject):
                raise RequestRefused.of(result)
            reservation = result
        except TimeoutError:
            retry_s = self._admission.retry_after_s(list(self._loads.values()), requester.priority)
            message = "no engine had room in time"
            raise RequestRefused(message, "queue_full", retry_s) from None
        finally:
            del self._grants[name]
            self._admission.remove(name)
            if reservation is None:
                _release_unclaimed(grant)
        return reservation

    def _add(self, waiting: Waiting) -> None:
        """Queue a request, for which another one may have to leave. Raises RequestRefused."""
        now = self._now()
        loads = self._available(now)
        holders = (
            self._find_holders((load.pod for load in loads), waiting.adapter)
            if waiting.adapter
            else ()
        )
        decision = self._admission.add(waiting, now, loads, lambda _: holders)
        if isinstance(decision, Reject):
            raise RequestRefused.of(decision)
        if (displaced := decision.displaced) is not None:
            grant = self._grants[displaced.waiting.request_id]
            if not grant.done():
                grant.set_result(displaced)

    def dispatch(self) -> None:
        """Grant slots to all requests that an endpoint has room for now."""
        if not len(self._admission):
            return
        now = self._now()
        loads = self._available(now)
        holders = self._holders(loads)
        while (admitted := self._admission.next(loads, now, holders.__getitem__)) is not None:
            waiting, fitting = admitted.waiting, admitted.engines
            grant = self._grants[waiting.request_id]
            if grant.done():  # released or cancelled: its task has not run since
                continue
            draw = random.random()  # noqa: S311 - spreads load
            load = self._engines.choose(waiting, fitting, now, draw).load
            placement = self._engines.send(waiting, load, now)
            correct = partial(self._correct, waiting)
            endpoint = self._endpoints[load.pod]
            grant.set_result(
                Reservation(endpoint, placement, self._engines, self._now, self.dispatch, correct)
            )
        if len(self._admission) and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(RECHECK_INTERVAL_S, self._recheck)

    def _available(self, now: float) -> list[EngineLoad]:
        """Loads of the engines that get requests now."""
        # The choice of the side uses the same ejections. With others, only the queue might avoid the engine
        # with an adapter's copy, and release and take back its requests again and again.
        ejected = self._ejected(self._of_service, now)
        loads = [load for load in self._loads.values() if load.pod not in ejected]
        return loads or list(self._loads.values())

    def _holders(self, loads: Iterable[EngineLoad]) -> dict[str, set[str]]:
        """Pods that have each adapter; requests for an adapter that none has are released."""
        holders = {
            adapter: self._find_holders((load.pod for load in loads), adapter)
            for adapter in self._admission.adapters
        }
        if not all(holders.values()):
            for waiting in self._admission:
                grant = self._grants[waiting.request_id]
                if waiting.adapter and not holders[waiting.adapter] and not grant.done():
                    grant.set_result(None)
        return holders

    def _recheck(self) -> None:
        self._timer = None
        self.dispatch()

    def _correct(self, waiting: Waiting, tokens: float) -> None:
        """Charge the tenant of an ended request for its actual tokens."""
        self._admission.correct(waiting.requester, tokens - waiting.kv_tokens)


def _release_unclaimed(grant: Grant) -> None:
    """Release a slot that was granted to a request while it was cancelled."""
    if grant.done() and not grant.cancelled():
        result = grant.result()
        if isinstance(result, Reservation):
            result.release()
