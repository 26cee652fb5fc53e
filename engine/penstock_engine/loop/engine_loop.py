"""Runs the engine on a thread: inbox -> schedule -> launch -> wait -> complete -> on_step.

If the runner allows it, a step is launched before the previous one has finished, so that this thread
completes, reports and schedules while the device computes.

    schedule 1, launch 1, schedule 2, launch 2, wait for 1, complete 1, schedule 3, launch 3, ...
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from penstock_engine.core.errors import RunnerDiedError
from penstock_engine.core.events import TokenEvent
from penstock_engine.core.kv_cache.block_events import BlockEvent
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.loop.step_pipeline import StepPipeline, StepRunner

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepReport:
    """Events and statistics since the last report.

    num_scheduled_tokens: tokens of the completed step; 0: no step was completed. duration_s: of the
    step. now: reading of the loop's clock. sequences: the parts of sequences in the step.
    """

    events: list[TokenEvent]
    stats: SchedulerStats
    num_scheduled_tokens: int
    duration_s: float
    now: float
    sequences: tuple[ScheduledSequence, ...] = ()


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[[], Any]
    done: Future[Any]


class _Signal(Enum):
    RUNNER_DIED = "the runner has died"
    STOP = "end all open requests"


Message = Sequence | _Abort | _Call | _Signal


class EngineLoop:
    """Runs the scheduler and the runner on its own thread; no other thread may use them once started.

    on_step: called on the loop's thread after each step and event. on_block_events: called on it with the
    changes of the prefix cache, once for each step with changes; None: they are not recorded. Both must
    not block.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[StepReport], None],
        on_block_events: Callable[[list[BlockEvent]], None] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._on_step = on_step
        self._on_block_events = on_block_events
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._stats = scheduler.stats()
        self._is_stopping = False
        self._runner_died = False
        self._has_ended = False
        self._pipeline = StepPipeline(runner, scheduler.is_alive, clock)
        self._completed_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="engine-loop", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._runner_died

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all open requests with reason "error", and join the thread."""
        self._inbox.put(_Signal.STOP)
        self._thread.join()

    def report_runner_death(self) -> None:
        """Tell the loop that the runner has died: all requests end with reason "error".

        Thread-safe, does not wait.
        """
        self._runner_died = True
        self._inbox.put(_Signal.RUNNER_DIED)

    def submit(self, sequence: Sequence) -> None:
        """Submit a request. If it is refused, an event with reason "error" follows.

        Request ids must be unique among the requests that have not ended. Thread-safe, does not wait.
        """
        self._inbox.put(sequence)

    def abort(self, request_id: str) -> None:
        """Abort a request; unknown and ended ones are ignored. Thread-safe, does not wait."""
        self._inbox.put(_Abort(request_id))

    def reset_prefix_cache(self) -> Future[None]:
        """Empty the prefix cache between two steps. Thread-safe, does not wait."""
        return self._enqueue_call(self._scheduler.reset_prefix_cache)

    def suspend(self) -> Future[None]:
        """Release the runner and its memory. No request may be open or submitted until `resume`.

        Thread-safe, does not wait.
        """

        def release_runner() -> None:
            assert not self._scheduler.has_work, "a sequence would lose its keys and values"
            self._scheduler.reset_prefix_cache()
            self._pipeline.runner = None

        return self._enqueue_call(release_runner)

    def resume(self, load: Callable[[], StepRunner]) -> Future[None]:
        """Load a runner and continue. An exception of `load` is set on the future.

        Thread-safe, does not wait.
        """

        def load_runner() -> None:
            self._pipeline.runner = load()

        return self._enqueue_call(load_runner)

    def call_runner(self, function: Callable[[Any], T]) -> Future[T]:
        """Call `function` with the runner between two steps. Thread-safe, does not wait."""
        return self._enqueue_call(lambda: function(self._pipeline.runner))

    def stats(self) -> SchedulerStats:
        """Scheduler statistics of the last report."""
        return self._stats

    def _serve(self) -> None:
        try:
            while not self._is_stopping:
                self._process_inbox()
                if not self._is_stopping:
                    self._step()
        except Exception:
            logger.exception("the engine loop has died")
        finally:
            self._has_ended = True
            self._reject_inbox()
            now = self._clock()
            self._report(self._scheduler.fail_all("engine_stopped", now), 0, now)

    def _process_inbox(self) -> None:
        """Process all messages in the inbox; wait for one if there is nothing to compute."""
        events: list[TokenEvent] = []
        if not self._scheduler.has_work:
            self._complete_all()
            self._scheduler.check()
            self._handle(self._inbox.get(), events)
        while not self._inbox.empty():
            self._handle(self._inbox.get(), events)
        if events:
            self._report(events, 0, self._clock())

    def _enqueue_call(self, function: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        self._inbox.put(_Call(function, done))
        if self._has_ended:  # the loop may never read this message
            _reject_call(done)
        return done

    def _handle(self, message: Message, events: list[TokenEvent]) -> None:
        """Process one message of the inbox; appends to `events` the event that it causes, if any."""
        event: TokenEvent | None = None
        match message:
            case Sequence():
                event = self._scheduler.add(message)
            case _Abort(request_id):
                event = self._scheduler.abort(request_id, self._clock())
            case _Call(function, done):
                self._complete_all()
                _run_call(done, function)
                self._publish_block_events()
            case _Signal.RUNNER_DIED:
                raise RunnerDiedError("the runner died between two steps")
            case _Signal.STOP:
                self._is_stopping = True
        if event is not None:
            events.append(event)

    def _step(self) -> None:
        """Launch a step if one can be scheduled, and complete the oldest if `depth` are in flight."""
        step = self._scheduler.schedule(self._clock())
        if step is None:
            self._complete_oldest()
            return
        if not self._pipeline.launch(step):
            self._complete_all()
        elif self._pipeline.is_full:
            self._complete_oldest()

    def _complete_all(self) -> None:
        while self._pipeline.in_flight:
            self._complete_oldest()

    def _complete_oldest(self) -> None:
        """Complete the oldest step in flight, if there is one."""
        computed = self._pipeline.wait_for_oldest()
        if computed is None:
            return
        step = computed.step
        now = self._clock()
        events = self._scheduler.fail(computed.failed, "step_failed", now)
        events += self._scheduler.complete(step, computed.outputs, now)
        if computed.failed:
            self._scheduler.check()
        started_s = max(computed.started_s, self._completed_s)
        self._report(events, step.num_tokens, started_s, step.sequences)
        self._completed_s = now
        self._pipeline.raise_if_broken()
        if self._pipeline.is_oldest_failed:
            self._complete_oldest()

    def _report(
        self,
        events: list[TokenEvent],
        num_scheduled_tokens: int,
        started: float,
        sequences: tuple[ScheduledSequence, ...] = (),
    ) -> None:
        self._publish_block_events()
        now = self._clock()
        self._stats = self._scheduler.stats()
        self._on_step(
            StepReport(events, self._stats, num_scheduled_tokens, now - started, now, sequences)
        )

    def _publish_block_events(self) -> None:
        if self._on_block_events is not None and (events := self._scheduler.take_block_events()):
            self._on_block_events(events)

    def _reject_inbox(self) -> None:
        """Accept sequences and refuse calls that arrived too late; `_serve` then fails all sequences."""
        while True:
            try:
                message = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(message, Sequence):
                self._scheduler.add(message)
            elif isinstance(message, _Call):
                _reject_call(message.done)


def _reject_call(done: Future[Any]) -> None:
    """Fail a call, unless it is done or cancelled already."""
    with suppress(InvalidStateError):
        done.set_exception(RuntimeError("the engine loop has ended"))


def _run_call(done: Future[T], function: Callable[[], T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except Exception as error:  # noqa: BLE001 - the caller's to judge
        done.set_exception(error)
    else:
        done.set_result(result)
