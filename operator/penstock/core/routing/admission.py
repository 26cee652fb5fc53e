"""When a request may go to an engine, and in which order requests wait for that.

    fits an engine -> it goes     waits too long, or too many wait -> shed

An engine takes a request while the first token is predicted in time, and its KV cache is predicted to
stay below KV_LIMIT; what decodes there the engine itself keeps in time. Whoever waits at the gateway can
still go to a pod that becomes ready; whoever was sent too early waits where it is. Policies:

    fcfs       in order of arrival; in time: within the objective from now
    deadline   in order of deadline, which is arrival plus objective. Who cannot make it any more goes
               behind all who can, and takes what they leave of an engine.
    none       to the least loaded engine at once, as if there were no admission
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Literal

from penstock.core.routing.engine_load import EngineLoad, Waiting

Policy = Literal["none", "fcfs", "deadline"]

# Share of the objective that is left for what a prediction does not know: the iteration that runs.
MARGIN = 0.1
# Of an engine's prefill time within the objective, what late requests may fill: the rest is for those
# that come in time.
LATE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class AdmissionSpec:
    """max_queued, max_wait_s: beyond them a request is shed."""

    policy: Policy = "deadline"
    ttft_s: float = 1.0
    max_queued: int = 1024
    max_wait_s: float = 60.0


class Admission:
    """The line of one service. Single owner, no locks."""

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
        """False when too many wait already."""
        if len(self._all) >= self.spec.max_queued:
            return False
        self._all[waiting.request_id] = waiting
        heappush(self._able, (waiting.deadline_s, next(self._serials), waiting))
        return True

    def next(
        self, engines: Sequence[EngineLoad], now: float
    ) -> tuple[Waiting, list[EngineLoad]] | None:
        """The request that goes next, out of the line now, and the engines that may take it."""
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

    def renew(self) -> None:
        """An engine is new: who was late may be in time there."""
        late, self._late = self._late, deque()
        for waiting in late:
            heappush(self._able, (waiting.deadline_s, next(self._serials), waiting))

    def remove(self, request_id: str) -> None:
        """Its client has left."""
        self._all.pop(request_id, None)

    def expired(self, now: float) -> list[Waiting]:
        """Who has waited too long, out of the line now."""
        since_s = now - self.spec.max_wait_s
        gone = [waiting for waiting in self._all.values() if waiting.arrival_s <= since_s]
        for waiting in gone:
            del self._all[waiting.request_id]
        return gone

    def check(self) -> None:
        """Everybody waits in one place, and no more than may."""
        lines = [*(waiting for _, _, waiting in self._able), *self._late]
        names = [waiting.request_id for waiting in lines if waiting.request_id in self._all]
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
    """How long the prompts that wait keep the engines busy: when to come again, 1 to most_s."""
    tokens = sum(w.prefill_tokens for w in waiting) + sum(e.prefill_tokens for e in engines)
    rate = sum(engine.pace.prefill_tokens_per_s for engine in engines)
    return most_s if not rate else min(most_s, max(1.0, tokens / rate))


def _fitting(engines: Iterable[EngineLoad], waiting: Waiting, within_s: float) -> list[EngineLoad]:
    """Engines without any prompt to compute fit as well: nowhere would it be sooner."""
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
