"""From the server's event loop to the engine's thread, and back."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.loop import EngineLoop, StepReport, StepRunner
from penstock_engine.server.deadlines import too_late
from penstock_engine.server.errors import RequestError
from penstock_engine.server.metrics import EngineMetrics, RequestRecord

T = TypeVar("T")

WATCH_INTERVAL_S = 0.5
SLEEP_POLL_S = 0.02


def asleep() -> RequestError:
    """The engine has let go of its memory, and takes nothing until it is woken."""
    return RequestError(503, "the engine is asleep: try again")


def gone() -> RequestError:
    """The engine's thread has ended; nothing will come of a request any more."""
    return RequestError(503, "the engine is stopping: try again")


@dataclass(slots=True)
class _Live:
    """A sequence on its way. None in the queue: the engine is gone."""

    record: RequestRecord
    num_queued_tokens: int
    events: asyncio.Queue[TokenEvent | None] = field(default_factory=asyncio.Queue)


class Bridge:
    """Submits sequences and hands their events out. Lives on one asyncio loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        metrics: EngineMetrics,
        eos_token_ids: frozenset[int],
        load: Callable[[], StepRunner] | None = None,
    ) -> None:
        """load: makes the runner anew after a sleep."""
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._eos_token_ids = eos_token_ids
        self._load = load
        self._is_asleep = False
        self._live: dict[str, _Live] = {}
        self._num_queued_tokens = 0
        self._max_open = scheduler.config.max_num_open_seqs
        self._engine = EngineLoop(scheduler, runner, clock=now_s, on_step=self._on_step)
        self._engine.start()
        self._watching = asyncio.create_task(self._watch())

    @property
    def alive(self) -> bool:
        return self._engine.alive

    @property
    def is_full(self) -> bool:
        """Whether neither a slot nor the queue has room, as of the last step."""
        stats = self._engine.stats()
        return stats.running + stats.waiting >= self._max_open

    @property
    def num_queued_tokens(self) -> int:
        """Prompt tokens of sequences that have no token of an answer yet."""
        return self._num_queued_tokens

    @property
    def is_asleep(self) -> bool:
        return self._is_asleep

    async def sleep(self, *, waits: bool) -> None:
        """Takes nothing new, waits for what runs or ends it, and frees the runner's memory.

        Once called, it cannot be taken back: cancelling it only ends the waiting for it.
        """
        self._is_asleep = True
        while waits and self._live:  # noqa: ASYNC110 - the last of many has no event
            await asyncio.sleep(SLEEP_POLL_S)
        for sequence_id in self._live:
            self._engine.abort(sequence_id)
        await asyncio.wrap_future(self._engine.suspend())

    async def wake_up(self) -> None:
        """Raises whatever loading raises, and stays asleep then."""
        assert self._load is not None, "nothing to load the runner with"
        await asyncio.wrap_future(self._engine.resume(self._load))
        self._is_asleep = False

    async def ask(self, function: Callable[[Any], T]) -> T:
        """What `function` makes of the runner, on the engine's thread between two steps.

        Raises RequestError when it sleeps or has ended.
        """
        if self._is_asleep:
            raise asleep()
        if not self.alive:
            raise gone()
        return await asyncio.wrap_future(self._engine.ask(function))

    async def reset_prefix_cache(self) -> None:
        await asyncio.wrap_future(self._engine.reset_prefix_cache())

    def lose(self) -> None:
        """Thread-safe: what computes the steps is gone, and the engine with it."""
        self._engine.lose()

    async def close(self) -> None:
        """Ends what still runs, with an event of reason "error" each, and the engine's thread."""
        await asyncio.to_thread(self._engine.stop)
        await self._watching

    async def generate(
        self,
        sequence_id: str,
        prompt: list[int],
        sampling: SamplingParams,
        record: RequestRecord,
        *,
        cache_salt: str,
        priority: int,
        constraint: Constraint | None,
        adapter: str,
        fork_of: str,
    ) -> AsyncGenerator[TokenEvent]:
        """The events of one sequence, to its end: at the record's deadline, if not before.

        fork_of: the id of a sequence with the same prompt, or "".

        Closing the iterator aborts the sequence. Raises RequestError for what cannot even begin.
        """
        if self._is_asleep:
            raise asleep()
        if not self.alive:
            raise gone()
        if record.is_late(now_s()):
            self._metrics.timed_out(record, "queued")
            raise too_late("queued")
        live = self._live[sequence_id] = _Live(record, len(prompt))
        self._num_queued_tokens += len(prompt)
        self._engine.submit(
            Sequence(
                sequence_id, prompt, sampling, self._eos_token_ids, now_s(), cache_salt,
                constraint, priority, adapter, fork_of, record.tpot_s,
            )
        )  # fmt: skip
        late = None
        if record.deadline_s is not None:
            late = self._loop.call_later(
                max(0.0, record.deadline_s - now_s()), self._engine.abort, sequence_id
            )
        is_finished = False
        try:
            while not is_finished:
                event = await live.events.get()
                if event is None:
                    raise gone()
                is_finished = event.finish_reason is not None
                yield event
        finally:
            if late is not None:
                late.cancel()
            if not is_finished:
                self._engine.abort(sequence_id)

    def _on_step(self, report: StepReport) -> None:
        """On the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, report)
        except RuntimeError:  # the loop is closed: nobody is listening any more
            return

    def _deliver(self, report: StepReport) -> None:
        self._metrics.observe_step(report)
        for event in report.events:
            live = self._live.get(event.request_id)
            if live is None:  # given up by the watch, at the very end
                continue
            self._num_queued_tokens -= live.num_queued_tokens
            live.num_queued_tokens = 0
            self._metrics.observe_event(event, live.record)
            live.events.put_nowait(event)
            if event.finish_reason is not None:
                del self._live[event.request_id]

    async def _watch(self) -> None:
        """What is submitted while the engine's thread ends would else wait for ever."""
        while self.alive:  # noqa: ASYNC110 - a thread has no event to wait for
            await asyncio.sleep(WATCH_INTERVAL_S)
        for live in self._live.values():
            live.events.put_nowait(None)
        self._live.clear()


def now_s() -> float:
    """The clock that the engine's events are on."""
    return time.monotonic()
