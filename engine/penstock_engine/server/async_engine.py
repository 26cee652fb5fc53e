"""Asynchronous interface to the engine's thread, for the server's event loop."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.loop.engine_loop import EngineLoop, StepReport
from penstock_engine.loop.step_pipeline import StepRunner
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.metrics.request_record import RequestRecord
from penstock_engine.server.transport.deadlines import deadline_error
from penstock_engine.server.transport.errors import RequestError

if TYPE_CHECKING:
    from penstock_engine.kv_events.publisher import EventPublisher

T = TypeVar("T")

WATCH_INTERVAL_S = 0.5  # how often the engine's thread is checked for its end
SLEEP_POLL_S = 0.02  # how often running sequences are counted while the engine goes to sleep


def asleep_error() -> RequestError:
    """Returns the error (503) of a request to an engine that sleeps."""
    return RequestError(503, "the engine is asleep: try again")


def stopping_error() -> RequestError:
    """Returns the error (503) of a request to an engine whose thread has ended."""
    return RequestError(503, "the engine is stopping: try again")


@dataclass(slots=True)
class _ActiveSequence:
    """A submitted sequence and its events. None in the queue: the engine's thread has ended.

    num_queued_tokens: prompt tokens if no step has given an event yet, else 0.
    """

    record: RequestRecord
    num_queued_tokens: int
    events: asyncio.Queue[TokenEvent | None] = field(default_factory=asyncio.Queue)


class AsyncEngine:
    """Submits sequences to the engine's thread and delivers their events to one asyncio loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        metrics: EngineMetrics,
        eos_token_ids: frozenset[int],
        load: Callable[[], StepRunner] | None = None,
        event_publisher: "EventPublisher | None" = None,
    ) -> None:
        """load: loads the runner again after a sleep. event_publisher: gets changes of the prefix cache."""
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._eos_token_ids = eos_token_ids
        self._load = load
        self._is_asleep = False
        self._active: dict[str, _ActiveSequence] = {}
        self._num_queued_tokens = 0
        self._max_open = scheduler.config.max_num_open_seqs
        self._event_publisher = event_publisher
        self._engine_loop = EngineLoop(
            scheduler,
            runner,
            clock=now_s,
            on_step=self._on_step,
            on_block_events=None if event_publisher is None else event_publisher.publish,
        )
        self._engine_loop.start()
        self._watch_task = asyncio.create_task(self._watch())

    @property
    def alive(self) -> bool:
        return self._engine_loop.alive

    @property
    def stats(self) -> SchedulerStats:
        """The scheduler's statistics after the last step."""
        return self._engine_loop.stats()

    @property
    def is_full(self) -> bool:
        """Whether all slots and the queue were full after the last step."""
        stats = self.stats
        return stats.running + stats.waiting >= self._max_open

    @property
    def num_queued_tokens(self) -> int:
        """Prompt tokens of the sequences that have had no event yet."""
        return self._num_queued_tokens

    @property
    def is_asleep(self) -> bool:
        return self._is_asleep

    async def sleep(self, *, waits: bool) -> None:
        """Rejects new sequences, ends the running ones, and frees the runner's memory.

        waits: whether running sequences finish; otherwise they are aborted. Cancelling this call does
        not wake the engine: it only ends the wait.
        """
        self._is_asleep = True
        while waits and self._active:  # noqa: ASYNC110 - the end of the last sequence sets no event
            await asyncio.sleep(SLEEP_POLL_S)
        for sequence_id in self._active:
            self._engine_loop.abort(sequence_id)
        await asyncio.wrap_future(self._engine_loop.suspend())

    async def wake_up(self) -> None:
        """Loads the runner again. If that raises, the engine stays asleep."""
        assert self._load is not None, "nothing to load the runner with"
        await asyncio.wrap_future(self._engine_loop.resume(self._load))
        self._is_asleep = False

    async def call_runner(self, function: Callable[[Any], T]) -> T:
        """Calls `function` with the runner, on the engine's thread between two steps.

        Raises RequestError if the engine sleeps or has stopped.
        """
        if self._is_asleep:
            raise asleep_error()
        if not self.alive:
            raise stopping_error()
        return await asyncio.wrap_future(self._engine_loop.call_runner(function))

    async def reset_prefix_cache(self) -> None:
        await asyncio.wrap_future(self._engine_loop.reset_prefix_cache())

    def report_runner_death(self) -> None:
        """Stops the engine because a process that computes its steps has died. Thread-safe."""
        self._engine_loop.report_runner_death()

    async def close(self) -> None:
        """Ends the engine's thread; running sequences get an event with finish reason "error"."""
        await asyncio.to_thread(self._engine_loop.stop)
        await self._watch_task
        if self._event_publisher is not None:
            await asyncio.to_thread(self._event_publisher.close)

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
        """Submits a sequence and yields its events, to its end or the record's deadline.

        adapter: identity of its adapter, or "". fork_of: id of a sequence with the same prompt, or "".

        Closing the iterator aborts the sequence. Raises RequestError if it cannot be submitted, or if
        the engine stops.
        """
        if self._is_asleep:
            raise asleep_error()
        if not self.alive:
            raise stopping_error()
        if record.is_past_deadline(now_s()):
            self._metrics.observe_timeout(record, "queued")
            raise deadline_error("queued")
        sequence = self._active[sequence_id] = _ActiveSequence(record, len(prompt))
        self._num_queued_tokens += len(prompt)
        self._engine_loop.submit(
            Sequence(
                sequence_id, prompt, sampling, self._eos_token_ids, now_s(), cache_salt,
                constraint, priority, adapter, fork_of, record.tpot_s,
            )
        )  # fmt: skip
        deadline_timer = None
        if record.deadline_s is not None:
            deadline_timer = self._loop.call_later(
                max(0.0, record.deadline_s - now_s()), self._engine_loop.abort, sequence_id
            )
        is_finished = False
        try:
            while not is_finished:
                event = await sequence.events.get()
                if event is None:
                    raise stopping_error()
                is_finished = event.finish_reason is not None
                yield event
        finally:
            if deadline_timer is not None:
                deadline_timer.cancel()
            if not is_finished:
                self._engine_loop.abort(sequence_id)

    def _on_step(self, report: StepReport) -> None:
        """Hands a report over to the event loop. Called on the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, report)
        except RuntimeError:  # the event loop is closed
            return

    def _deliver(self, report: StepReport) -> None:
        self._metrics.observe_step(report)
        for event in report.events:
            sequence = self._active.get(event.request_id)
            if sequence is None:  # dropped by _watch
                continue
            self._num_queued_tokens -= sequence.num_queued_tokens
            sequence.num_queued_tokens = 0
            self._metrics.observe_event(event, sequence.record)
            sequence.events.put_nowait(event)
            if event.finish_reason is not None:
                del self._active[event.request_id]

    async def _watch(self) -> None:
        """Ends all active sequences once the engine's thread has ended.

        A sequence submitted while the thread ends gets no event, and would wait forever.
        """
        while self.alive:  # noqa: ASYNC110 - a thread has no event to wait for
            await asyncio.sleep(WATCH_INTERVAL_S)
        for sequence in self._active.values():
            sequence.events.put_nowait(None)
        self._active.clear()


def now_s() -> float:
    """Returns the time in seconds on the monotonic clock that the engine's events use."""
    return time.monotonic()
