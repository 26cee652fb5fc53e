"""Admission control: decides when a request may go to an engine, and the order of waiting requests.

    fits an engine -> sent     full queue, or more work ahead than it may wait for -> refused

A request fits an engine if its first token is predicted in time and the KV cache is predicted to stay
below KV_LIMIT (`room.py`). The engine itself paces decoding. A request that waits at the gateway can still go
to a pod that becomes ready; one sent too early is stuck in an engine's queue. The order:

    1. a higher priority first, always
    2. requests that can be in time before those that cannot, which use the capacity that the former leave
    3. the tenant with the fewest tokens for its weight (`fair_shares.py`)
    4. the earliest deadline, which is arrival plus objective

Policies: `deadline` is all of this. With `fcfs` in time means within the objective from now, and no request
is late. With `none` each request is sent at once.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.class_limits import ClassLimits
from penstock.core.admission.deadline_queue import is_in_time
from penstock.core.admission.decision import Admit, Reject, RejectReason, Wait
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.fair_shares import ACTIVE_S
from penstock.core.admission.lane import LaneSearch
from penstock.core.admission.priority_class import PriorityClass
from penstock.core.admission.requester import Requester
from penstock.core.admission.room import MARGIN
from penstock.core.tenants.tenant import BATCH_PRIORITY

# Share of the queue that requests for one adapter may fill, so that they leave room for others.
MAX_LANE_SHARE = 0.5
# Longest Retry-After of a refused request, in seconds: other engines may have started by then.
MAX_RETRY_S = 60.0

# Returns the pods that have an adapter in memory.
Holders = Callable[[str], Collection[str]]


def _no_pods(_: str) -> Collection[str]:
    return ()


class Admission:
    """Admission queue of one service. Single owner, no locks.

    Requests for an adapter wait for the engines that have it. A request that fits no engine keeps its engines
    from those behind it, which may only have others.
    """

    def __init__(self, spec: AdmissionSpec) -> None:
        self.spec = spec
        self._all: dict[str, Waiting] = {}
        self._classes: dict[int, PriorityClass] = {}  # the highest priority first
        self._serials = count()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._all.values())

    @property
    def adapters(self) -> set[str]:
        """Adapters that requests wait for."""
        return {name for each in self._classes.values() for name in each.lanes if name}

    def add(
        self,
        waiting: Waiting,
        now: float,
        engines: Sequence[EngineLoad] = (),
        holders: Holders = _no_pods,
    ) -> Wait | Reject:
        """Enqueue a request, or refuse it. `next` returns it when it may go, possibly at once.

        engines: that are there now; without any, no wait is predicted. holders: pods that have an adapter.
        """
        usable = _usable(engines, waiting.adapter, holders)
        retry_s = self.retry_after_s(usable, waiting.requester.priority)
        if reason := self._reason_to_refuse(waiting, usable, now):
            return Reject(waiting, reason, retry_s)
        displaced = None
        if (last := self._last_in_turn(waiting)) is waiting:
            return Reject(waiting, "queue_full", retry_s)
        if last is not None and waiting.requester.max_queued == 0:
            return Reject(waiting, "tenant_queue_full", retry_s)
        if last is not None:
            retry_s = self.retry_after_s(engines, last.requester.priority)
            displaced = Reject(last, "displaced", retry_s)
            self.remove(last.request_id)
        each = self._class_of(waiting.requester.priority)
        each.last_arrival_s = now
        each.add(waiting, next(self._serials), now)
        self._all[waiting.request_id] = waiting
        return Wait(displaced)

    def next(
        self, engines: Sequence[EngineLoad], now: float, holders: Holders = _no_pods
    ) -> Admit | None:
        """Dequeue the next request that fits, with the engines that may take it; None if none fits.

        holders: pods that have an adapter in memory.
        """
        if not engines or not self._all:
            return None
        kept: set[str] = set()  # pods that an earlier request waits for
        usable = {name: _usable(engines, name, holders) for name in self._lane_names()}
        highest = self._highest_active(now)
        for each in list(self._classes.values()):
            if not len(each):
                continue
            if each.priority <= BATCH_PRIORITY and len(each) < len(self._all):
                return None
            yields = each.priority < highest
            for is_late in (False, True):
                limits = ClassLimits(self.spec, each, now, is_late=is_late, yields=yields)
                search = LaneSearch(is_late, limits.latest_deadline_s, self._serials, now)
                if admitted := each.first(search, usable, kept, limits.find_fit):
                    each.shares.charge(admitted.waiting)
                    self.remove(admitted.waiting.request_id)
                    return admitted
                if len(kept) == len(engines):
                    return None
        return None

    def refuse_to_wait(self, waiting: Waiting, engines: Sequence[EngineLoad] = ()) -> Reject | None:
        """Remove a request that `next` has not returned, if it may not wait, as a bound is 0."""
        if waiting.requester.max_queued != 0 and self.spec.max_queued != 0:
            return None
        self.remove(waiting.request_id)
        reason: RejectReason = "queue_full" if self.spec.max_queued == 0 else "tenant_queue_full"
        return Reject(waiting, reason, self.retry_after_s(engines, waiting.requester.priority))

    def requeue_late(self) -> None:
        """Queue late requests by deadline again: a new engine or copy may serve them in time."""
        for each in self._classes.values():
            each.requeue_late(self._serials)

    def remove(self, request_id: str) -> None:
        """Remove a request, such as one whose client disconnected. Its queue skips it later."""
        waiting = self._all.pop(request_id, None)
        if waiting is not None:
            self._classes[waiting.requester.priority].remove(waiting)

    def correct(self, requester: Requester, tokens: float) -> None:
        """Count by how many tokens an ended request was longer than estimated; negative: shorter."""
        if each := self._classes.get(requester.priority):
            each.shares.correct(requester.tenant, tokens)

    def expired(self, now: float) -> list[Waiting]:
        """Dequeue the requests that waited longer than they may."""
        gone = [
            each for each in self._all.values() if each.arrival_s <= now - self._max_wait_s(each)
        ]
        for waiting in gone:
            self.remove(waiting.request_id)
        return gone

    def retry_after_s(self, engines: Sequence[EngineLoad], priority: int) -> float:
        """Seconds for a Retry-After header, 1 to MAX_RETRY_S: the time to prefill the prompts ahead."""
        waiting = sum(
            each.shares.prefill_tokens
            for each in self._classes.values()
            if each.priority >= priority
        )
        tokens = waiting + sum(engine.prefill_tokens for engine in engines)
        rate = _prefill_tokens_per_s(engines)
        return MAX_RETRY_S if not rate else min(MAX_RETRY_S, max(1.0, tokens / rate))

    def check(self) -> None:
        """Assert that each request is in exactly one queue, that the sums agree, and that the limit holds."""
        for each in self._classes.values():
            each.check()
        names = [
            w.request_id
            for each in self._classes.values()
            for lane in each.lanes.values()
            for w in lane
        ]
        assert sorted(names) == sorted(self._all)
        assert len(self._all) <= max(1, self.spec.max_queued)
        assert list(self._classes) == sorted(self._classes, reverse=True)

    def _lane_names(self) -> set[str]:
        return {name for each in self._classes.values() for name in each.lanes}

    def _class_of(self, priority: int) -> PriorityClass:
        """The class of a priority, which is made if there is none."""
        if priority not in self._classes:
            self._classes[priority] = PriorityClass(priority, self._all)
            self._classes = dict(sorted(self._classes.items(), reverse=True))
        return self._classes[priority]

    def _highest_active(self, now: float) -> int:
        """The highest priority of a request that waits or came recently. Forgets the classes without any."""
        for priority, each in list(self._classes.items()):
            if len(each) or each.last_arrival_s > now - ACTIVE_S:
                return priority
            del self._classes[priority]
        return BATCH_PRIORITY

    def _max_wait_s(self, waiting: Waiting) -> float:
        own_s = waiting.requester.max_wait_s
        return self.spec.max_wait_s if own_s is None else min(own_s, self.spec.max_wait_s)

    def _reason_to_refuse(
        self, waiting: Waiting, usable: Sequence[EngineLoad], now: float
    ) -> RejectReason | None:
        requester = waiting.requester
        own = self._classes.get(requester.priority)
        num_waiting = 0 if own is None else own.shares.num_waiting_of(requester.tenant)
        # A bound of 0 lets one request in: `refuse_to_wait` then refuses it, unless it can go at once.
        if requester.max_queued is not None and num_waiting >= max(1, requester.max_queued):
            return "tenant_queue_full"
        rate = _prefill_tokens_per_s(usable)
        if self.spec.policy != "deadline" or not rate or math.isinf(rate):
            return None
        margin_s = self.spec.ttft_s * MARGIN
        if is_in_time(usable, waiting, waiting.deadline_s - now - margin_s, now):
            return None
        tokens = 0.0 if own is None else own.shares.prefill_tokens_ahead(waiting)
        tokens += sum(engine.prefill_tokens for engine in usable)
        tokens += sum(
            each.shares.prefill_tokens
            for each in self._classes.values()
            if each.priority > requester.priority
        )
        return "overloaded" if tokens > self._max_wait_s(waiting) * rate else None

    def _last_in_turn(self, newcomer: Waiting) -> Waiting | None:
        """The request to give up for a newcomer, possibly itself; None: there is room for all."""
        priority, name = newcomer.requester.priority, newcomer.adapter
        limit = max(1, self.spec.max_queued)
        if name:
            with_lane = [each for each in self._classes.values() if name in each.lanes]
            if sum(each.lanes[name].num_waiting for each in with_lane) >= MAX_LANE_SHARE * limit:
                lowest = with_lane[-1]
                if lowest.priority >= priority:
                    return newcomer
                return max(lowest.lanes[name], key=lambda each: each.deadline_s)
        if len(self._all) < limit:
            return None
        lowest = [each for each in self._classes.values() if len(each)][-1]
        if lowest.priority > priority:
            return newcomer
        return lowest.shares.last_in_turn(newcomer if lowest.priority == priority else None)


def _prefill_tokens_per_s(engines: Iterable[EngineLoad]) -> float:
    return sum(engine.prefill_tokens_per_s for engine in engines)


def _usable(engines: Sequence[EngineLoad], adapter: str, holders: Holders) -> Sequence[EngineLoad]:
    """The engines that may take requests for the adapter, or for the base model if it is empty."""
    if not adapter:
        return engines
    pods = holders(adapter)
    return [engine for engine in engines if engine.pod in pods]
