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

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Literal

from penstock.core.routing.engine_load import EngineLoad, Waiting

Policy = Literal["none", "fcfs", "deadline"]

# Share of the objective reserved for the running iteration, which the prediction does not include.
MARGIN = 0.1
# Share of an engine's prefill time within the objective that late requests may use. The rest is for
# requests that can still be in time.
LATE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class AdmissionSpec:
    """Settings of admission. Requests beyond max_queued or max_wait_s are shed."""

    policy: Policy = "deadline"
    ttft_s: float = 1.0
    max_queued: int = 1024
    max_wait_s: float = 60.0


class Admission:
    """Admission queue of one service. Single owner, no locks."""

    def __init__(self, spec: AdmissionSpec) -> None:
        self.spec = spec
        self._able: list[tuple[float, int, Waiting]] = []  # heap by deadline
        self._late: deque[Waiting] = deque()
        self._all: dict[str, Waiting] = {}
        self._serials = count()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._all.values())

    def add(self, waiting: Waiting) -> bool:
        """Enqueue a request. Returns False if the queue is full."""
        if len(self._all) >= self.spec.max_queued:
            return False
        self._all[waiting.request_id] = waiting
        heappush(self._able, (waiting.deadline_s, next(self._serials), waiting))
        return True

    def next(
        self, engines: Sequence[EngineLoad], now: float
    ) -> tuple[Waiting, list[EngineLoad]] | None:
        """Dequeue the next request that fits, with the engines that may take it; None if none fits."""
        if not engines or not self._all:
            return None
        margin_s = self.spec.ttft_s * MARGIN
        if (head := self._first_able()) is None:
            return self._next_late(engines)
        match self.spec.policy:
            case "none":
                fitting = list(engines)
            case "fcfs":
                fitting = _fitting(engines, head, self.spec.ttft_s - margin_s)
            case "deadline":
                latest_s = now + margin_s
                while head is not None and not _is_in_time(
                    engines, head, head.deadline_s - latest_s
                ):
                    self._late.append(heappop(self._able)[2])
                    head = self._first_able()
                if head is None:
                    return self._next_late(engines)
                fitting = _fitting(engines, head, head.deadline_s - latest_s)
        if not fitting:
            return None
        heappop(self._able)
        del self._all[head.request_id]
        return head, fitting

    def requeue_late(self) -> None:
        """Queue late requests by deadline again: a new engine may serve them in time."""
        late, self._late = self._late, deque()
        for waiting in late:
            heappush(self._able, (waiting.deadline_s, next(self._serials), waiting))

    def remove(self, request_id: str) -> None:
        """Remove a request whose client disconnected."""
        self._all.pop(request_id, None)

    def expired(self, now: float) -> list[Waiting]:
        """Dequeue the requests that waited longer than max_wait_s."""
        since_s = now - self.spec.max_wait_s
        gone = [waiting for waiting in self._all.values() if waiting.arrival_s <= since_s]
        for waiting in gone:
            del self._all[waiting.request_id]
        return gone

    def check(self) -> None:
        """Assert that each request is in exactly one queue and the limit holds."""
        queued = [*(waiting for _, _, waiting in self._able), *self._late]
        names = [waiting.request_id for waiting in queued if waiting.request_id in self._all]
        assert sorted(names) == sorted(self._all)
        assert len(self._all) <= self.spec.max_queued

    def _first_able(self) -> Waiting | None:
        while self._able and self._able[0][2].request_id not in self._all:
            heappop(self._able)
        return self._able[0][2] if self._able else None

    def _next_late(self, engines: Sequence[EngineLoad]) -> tuple[Waiting, list[EngineLoad]] | None:
        while self._late and self._late[0].request_id not in self._all:
            self._late.popleft()
        if not self._late:
            return None
        fitting = _fitting(engines, self._late[0], self.spec.ttft_s * LATE_SHARE)
        if not fitting:
            return None
        head = self._late.popleft()
        del self._all[head.request_id]
        return head, fitting


def retry_after_s(
    waiting: Iterable[Waiting], engines: Sequence[EngineLoad], most_s: float = 60.0
) -> float:
    """Seconds for a Retry-After header, 1 to most_s: the time to prefill all waiting prompts."""
    tokens = sum(w.prefill_tokens for w in waiting) + sum(e.prefill_tokens for e in engines)
    rate = sum(engine.throughput.prefill_tokens_per_s for engine in engines)
    return most_s if not rate else min(most_s, max(1.0, tokens / rate))


def _fitting(engines: Iterable[EngineLoad], waiting: Waiting, within_s: float) -> list[EngineLoad]:
    """Engines that may take the request. An engine without prompts to prefill always fits."""
    return [
        engine
        for engine in engines
        if engine.has_kv_for(waiting.kv_tokens)
        and engine.is_sure()
        and (not engine.prefill_tokens or engine.ttft_s(waiting.prefill_tokens) <= within_s)
    ]


def _is_in_time(engines: Iterable[EngineLoad], waiting: Waiting, within_s: float) -> bool:
    """Whether some engine would give the first token in time, if its KV cache had room."""
    return any(engine.ttft_s(waiting.prefill_tokens) <= within_s for engine in engines)
