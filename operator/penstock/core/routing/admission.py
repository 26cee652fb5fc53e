"""Admission control: decides when a request may go to an engine, and the order of waiting requests.

    fits an engine -> sent     waited too long, or queue full -> shed

A request fits an engine if its first token is predicted in time and the KV cache is predicted to stay
below KV_LIMIT. The engine itself paces decoding. A request that waits at the gateway can still go to a pod
that becomes ready; one sent too early is stuck in an engine's queue. Policies:

    fcfs       in order of arrival; in time means within the objective from now
    deadline   in order of deadline, which is arrival plus objective. Requests that can no longer meet it
               wait behind all that can, and use the capacity that those leave.
    none       to the least loaded engine at once, without admission control
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from penstock.core.routing.engine_load import EngineLoad, Waiting
from penstock.core.routing.lane import Lane

Policy = Literal["none", "fcfs", "deadline"]

# Share of the objective reserved for the running iteration, which the prediction does not include.
MARGIN = 0.1
# Share of an engine's prefill time within the objective that late requests may use. The rest is for
# requests that can still be in time.
LATE_SHARE = 0.5
# Share of the queue that requests for one adapter may fill, so that they leave room for others.
MAX_LANE_SHARE = 0.5
# Longest Retry-After of a shed request, in seconds: other engines may have started by then.
MAX_RETRY_S = 60.0

# Returns the pods that have an adapter in memory.
Holders = Callable[[str], Collection[str]]


def _no_pods(_: str) -> Collection[str]:
    return ()


@dataclass(frozen=True, slots=True)
class AdmissionSpec:
    """Settings of admission. Requests beyond max_queued or max_wait_s are shed."""

    policy: Policy = "deadline"
    ttft_s: float = 1.0
    max_queued: int = 1024
    max_wait_s: float = 60.0


class Admission:
    """Admission queue of one service. Single owner, no locks.

    Requests for an adapter wait in a lane of their own, for the engines that have it. The lanes take turns
    in the order of deadlines. A lane whose first request fits no engine keeps its engines for that request:
    those behind it may only have others.
    """

    def __init__(self, spec: AdmissionSpec) -> None:
        self.spec = spec
        self._all: dict[str, Waiting] = {}
        self._lanes: dict[str, Lane] = {}
        self._serials = count()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._all.values())

    @property
    def adapters(self) -> list[str]:
        """Adapters that requests wait for."""
        return [adapter for adapter in self._lanes if adapter]

    def add(self, waiting: Waiting) -> bool:
        """Enqueue a request. Returns False if the queue, or its adapter's part of it, is full."""
        lane = self._lanes.get(waiting.adapter) or Lane(self._all)
        limit = self.spec.max_queued
        if len(self._all) >= limit or (
            waiting.adapter and lane.num_waiting >= MAX_LANE_SHARE * limit
        ):
            return False
        self._lanes[waiting.adapter] = lane
        self._all[waiting.request_id] = waiting
        lane.add(waiting, next(self._serials))
        lane.num_waiting += 1
        return True

    def next(
        self, engines: Sequence[EngineLoad], now: float, holders: Holders = _no_pods
    ) -> tuple[Waiting, list[EngineLoad]] | None:
        """Dequeue the next request that fits, with the engines that may take it; None if none fits.

        holders: pods that have an adapter in memory.
        """
        if not engines or not self._all:
            return None
        latest_s = now + self.spec.ttft_s * MARGIN
        own = {name: _usable(engines, name, holders) for name in self._lanes}
        if self.spec.policy == "deadline":
            for name, lane in self._lanes.items():
                if own[name]:
                    lane.move_late(own[name], latest_s, self._serials)
        kept: set[str] = set()  # pods that an earlier request waits for
        for name, lane in self._in_order(Lane.first_able):
            head = lane.able[0][2]
            if fitting := self._fitting(_exclude(own[name], kept), head, latest_s):
                self.remove(head.request_id)
                return head, fitting
            if not name:
                return None  # it waits for every engine
            kept.update(engine.pod for engine in own[name])
        for name, lane in self._in_order(Lane.first_late):
            head = lane.late[0][1]
            within_s = self.spec.ttft_s * LATE_SHARE
            if fitting := _fitting(_exclude(own[name], kept), head, within_s):
                self.remove(head.request_id)
                return head, fitting
            if not name:
                return None
            kept.update(engine.pod for engine in own[name])
        return None

    def requeue_late(self) -> None:
        """Queue late requests by deadline again: a new engine or copy may serve them in time."""
        for lane in self._lanes.values():
            lane.requeue_late(self._serials)

    def remove(self, request_id: str) -> None:
        """Remove a request, such as one whose client disconnected. Its lane skips it later."""
        waiting = self._all.pop(request_id, None)
        if waiting is not None:
            lane = self._lanes[waiting.adapter]
            lane.num_waiting -= 1
            if not lane.num_waiting:
                del self._lanes[waiting.adapter]

    def expired(self, now: float) -> list[Waiting]:
        """Dequeue the requests that waited longer than max_wait_s."""
        since_s = now - self.spec.max_wait_s
        gone = [waiting for waiting in self._all.values() if waiting.arrival_s <= since_s]
        for waiting in gone:
            self.remove(waiting.request_id)
        return gone

    def check(self) -> None:
        """Assert that each request is in exactly one queue and the limit holds."""
        queued = [
            waiting
            for lane in self._lanes.values()
            for waiting in (*(each[2] for each in lane.able), *(each[1] for each in lane.late))
        ]
        names = [waiting.request_id for waiting in queued if waiting.request_id in self._all]
        assert sorted(names) == sorted(self._all)
        assert len(self._all) <= self.spec.max_queued

    def _in_order(self, first: Callable[[Lane], Any]) -> list[tuple[str, Lane]]:
        """The lanes that have a first request of a kind, in the order of these requests."""
        if len(self._lanes) == 1:
            return [each for each in self._lanes.items() if first(each[1])]
        found = [(head[:-1], name) for name, lane in self._lanes.items() if (head := first(lane))]
        return [(name, self._lanes[name]) for _, name in sorted(found)]

    def _fitting(
        self, engines: Iterable[EngineLoad], head: Waiting, latest_s: float
    ) -> list[EngineLoad]:
        match self.spec.policy:
            case "none":
                return list(engines)
            case "fcfs":
                return _fitting(engines, head, self.spec.ttft_s * (1 - MARGIN))
            case "deadline":
                return _fitting(engines, head, head.deadline_s - latest_s)


def retry_after_s(waiting: Iterable[Waiting], engines: Sequence[EngineLoad]) -> float:
    """Seconds for a Retry-After header, 1 to MAX_RETRY_S: the time to prefill all waiting prompts."""
    tokens = sum(w.prefill_tokens for w in waiting) + sum(e.prefill_tokens for e in engines)
    rate = sum(engine.throughput.prefill_tokens_per_s for engine in engines)
    return MAX_RETRY_S if not rate else min(MAX_RETRY_S, max(1.0, tokens / rate))


def _usable(engines: Sequence[EngineLoad], adapter: str, holders: Holders) -> Sequence[EngineLoad]:
    """The engines that may take requests for the adapter, or for the base model if it is empty."""
    if not adapter:
        return engines
    pods = holders(adapter)
    return [engine for engine in engines if engine.pod in pods]


def _exclude(engines: Sequence[EngineLoad], pods: Collection[str]) -> Sequence[EngineLoad]:
    return [engine for engine in engines if engine.pod not in pods] if pods else engines


def _fitting(engines: Iterable[EngineLoad], waiting: Waiting, within_s: float) -> list[EngineLoad]:
    """Engines that may take the request. An engine without prompts to prefill always fits."""
    return [
        engine
        for engine in engines
        if engine.has_kv_for(waiting.kv_tokens)
        and engine.is_sure()
        and (not engine.prefill_tokens or engine.ttft_s(waiting.prefill_tokens) <= within_s)
    ]
