"""Runs the engine on a thread: inbox -> schedule -> launch -> wait -> complete -> on_step.

If the runner allows it, a step is launched before the previous one has finished, so that this thread
completes, reports and schedules while the device computes.

    schedule 1, launch 1, schedule 2, launch 2, wait for 1, complete 1, schedule 3, launch 3, ...
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from penstock_engine.core.errors import RunnerDiedError
from penstock_engine.core.events import TokenEvent
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import ScheduledSequence, SequenceOutput, Step

T = TypeVar("T")

logger = logging.getLogger(__name__)

# A single bad request is isolated within its step. If all sequences fail in this many consecutive steps,
# the device or the model is assumed to be broken.
MAX_CONSECUTIVE_FAILURES = 3


class StepHandle(Protocol):
    """Handle of a step that has been launched on the runner."""

    def wait(self) -> dict[str, SequenceOutput]:
        """Wait for the outputs of the step, by request id. Raises RunnerDiedError."""
        ...


class StepRunner(Protocol):
    """Computes steps, in the order of launching."""

    @property
    def depth(self) -> int:
        """Number of steps that may be launched before the first of them has finished: 1 or 2."""
        ...

    def launch(self, step: Step) -> StepHandle:
        """Start computing a step after those launched before. Raises RunnerDiedError."""
        ...


@dataclass(slots=True)
class _InFlight:
    """A step in flight. results: to wait for; None if it or the step before it has failed."""

    step: Step
    results: StepHandle | None
    started_s: float


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


@dataclass(frozen=True, slots=True)
class _RunnerDied:
    pass


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


Message = Sequence | _Abort | _Call | _RunnerDied | _Stop


class EngineLoop:
    """Runs the scheduler and the runner on its own thread; no other thread may use them once started.

    on_step: called on the loop's thread after each step and event; must not block.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[StepReport], None],
    ) -> None:
        self._scheduler = scheduler
        self._runner: StepRunner | None = runner
        self._clock = clock
        self._on_step = on_step
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._stats = scheduler.stats()
        self._is_stopping = False
        self._runner_died = False
        self._has_ended = False
        self._num_failures = 0
        self._in_flight: deque[_InFlight] = deque()
        self._completed_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="engine-loop", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._runner_died

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all open requests with reason "error", and join the thread."""
        self._inbox.put(_Stop())
        self._thread.join()

    def report_runner_death(self) -> None:
        """Tell the loop that the runner has died: all requests end with reason "error".

        Thread-safe, does not wait.
        """
        self._runner_died = True
        self._inbox.put(_RunnerDied())

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
            self._runner = None

        return self._enqueue_call(release_runner)

    def resume(self, load: Callable[[], StepRunner]) -> Future[None]:
        """Load a runner and continue. An exception of `load` is set on the future.

        Thread-safe, does not wait.
        """

        def load_runner() -> None:
            self._runner = load()

        return self._enqueue_call(load_runner)

    def call_runner(self, function: Callable[[Any], T]) -> Future[T]:
        """Call `function` with the runner between two steps. Thread-safe, does not wait."""
        return self._enqueue_call(lambda: function(self._runner))

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
            case _RunnerDied():
                raise RunnerDiedError("the runner died between two steps")
            case _Stop():
                self._is_stopping = True
        if event is not None:
            events.append(event)

    def _step(self) -> None:
        """Launch a step if one can be scheduled, and complete the oldest if `depth` are in flight."""
        step = self._scheduler.schedule(self._clock())
        if step is None:
            self._complete_oldest()
            return
        runner = self._runner
        assert runner is not None, "a sequence was submitted to a suspended loop"
        launched = self._launch(runner, step)
        self._in_flight.append(launched)
        if launched.results is None:
            self._complete_all()
        elif len(self._in_flight) >= runner.depth:
            self._complete_oldest()

    def _launch(self, runner: StepRunner, step: Step) -> _InFlight:
        started_s = self._clock()
        try:
            return _InFlight(step, runner.launch(step), started_s)
        except RunnerDiedError:
            raise
        except Exception:
            logger.exception("a step of %d sequences failed", len(step.sequences))
            return _InFlight(step, None, started_s)

    def _complete_all(self) -> None:
        while self._in_flight:
            self._complete_oldest()

    def _complete_oldest(self) -> None:
        """Complete the oldest step in flight, if there is one."""
        if not self._in_flight:
            return
        oldest = self._in_flight.popleft()
        sampled, failed = self._results(oldest)
        now = self._clock()
        events = self._scheduler.fail(failed, "step_failed", now)
        events += self._scheduler.complete(oldest.step, sampled, now)
        if failed:
            self._scheduler.check()
        started_s = max(oldest.started_s, self._completed_s)
        self._report(events, oldest.step.num_tokens, started_s, oldest.step.sequences)
        self._completed_s = now
        if self._num_failures >= MAX_CONSECUTIVE_FAILURES:
            raise RuntimeError(f"{self._num_failures} steps in a row failed entirely")
        if self._in_flight and self._in_flight[0].results is None:
            self._complete_oldest()

    def _results(self, oldest: _InFlight) -> tuple[dict[str, SequenceOutput], list[str]]:
        """Wait for a step. Returns its outputs, and the ids of requests that failed.

        A failed step is run again, one sequence at a time. So is the step launched after it, because
        it used the tokens that the failed one should have sampled.
        """
        if oldest.results is not None:
            try:
                sampled = oldest.results.wait()
            except RunnerDiedError:
                raise
            except Exception:
                logger.exception("a step of %d sequences failed", len(oldest.step.sequences))
            else:
                self._num_failures = 0
                return sampled, []
            for later in self._in_flight:
                later.results = None
        return self._one_by_one(oldest.step)

    def _one_by_one(self, step: Step) -> tuple[dict[str, SequenceOutput], list[str]]:
        """Run a step again, one sequence at a time; returns the same as `_results`.

        Sequences that have ended meanwhile are skipped, as their blocks may belong to others.
        """
        assert self._runner is not None
        sampled: dict[str, SequenceOutput] = {}
        failed: list[str] = []
        alive = [s.with_sampled_token() for s in step.sequences if self._scheduler.is_alive(s)]
        for scheduled in alive:
            try:
                sampled |= self._runner.launch(Step((scheduled,))).wait()
            except RunnerDiedError:
                raise
            except Exception:
                logger.exception("a step of one sequence failed")
                failed.append(scheduled.request_id)
        if alive:
            self._num_failures = self._num_failures + 1 if len(failed) == len(alive) else 0
        return sampled, failed

    def _report(
        self,
        events: list[TokenEvent],
        num_scheduled_tokens: int,
        started: float,
        sequences: tuple[ScheduledSequence, ...] = (),
    ) -> None:
        now = self._clock()
        self._stats = self._scheduler.stats()
        self._on_step(
            StepReport(events, self._stats, num_scheduled_tokens, now - started, now, sequences)
        )

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
