"""Launches steps, waits for them in order, and reruns a failed one sequence by sequence."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock_engine.core.errors import RunnerDiedError
from penstock_engine.core.step import ScheduledSequence, SequenceOutput, Step

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
class ComputedStep:
    """A step with its outputs by request id, and the ids of requests that failed."""

    step: Step
    outputs: dict[str, SequenceOutput]
    failed: list[str]
    started_s: float


class StepPipeline:
    """The steps that were launched on a runner and not waited for yet. Not thread-safe.

    runner: None while the engine is suspended.
    """

    def __init__(
        self,
        runner: StepRunner,
        is_alive: Callable[[ScheduledSequence], bool],
        clock: Callable[[], float],
    ) -> None:
        """is_alive: returns whether a sequence still runs."""
        self.runner: StepRunner | None = runner
        self.in_flight: deque[_InFlight] = deque()
        self._is_alive = is_alive
        self._clock = clock
        self._num_failures = 0

    @property
    def is_full(self) -> bool:
        """Whether the oldest step has to be waited for before another is launched."""
        return self.runner is not None and len(self.in_flight) >= self.runner.depth

    @property
    def is_oldest_failed(self) -> bool:
        """True if the oldest step has already failed, so that waiting for it is unnecessary."""
        return bool(self.in_flight) and self.in_flight[0].results is None

    def launch(self, step: Step) -> bool:
        """Launch a step. Returns False if that failed. Raises RunnerDiedError."""
        assert self.runner is not None, "a sequence was submitted to a suspended loop"
        started_s = self._clock()
        results = None
        try:
            results = self.runner.launch(step)
        except RunnerDiedError:
            raise
        except Exception:
            logger.exception("a step of %d sequences failed", len(step.sequences))
        self.in_flight.append(_InFlight(step, results, started_s))
        return results is not None

    def wait_for_oldest(self) -> ComputedStep | None:
        """Wait for the oldest step. Returns None if none is in flight. Raises RunnerDiedError.

        A failed step is run again, one sequence at a time. So is the step launched after it, because
        it used the tokens that the failed one should have sampled.
        """
        if not self.in_flight:
            return None
        oldest = self.in_flight.popleft()
        step = oldest.step
        if oldest.results is not None:
            try:
                outputs = oldest.results.wait()
            except RunnerDiedError:
                raise
            except Exception:
                logger.exception("a step of %d sequences failed", len(step.sequences))
            else:
                self._num_failures = 0
                return ComputedStep(step, outputs, [], oldest.started_s)
            for later in self.in_flight:
                later.results = None
        return ComputedStep(step, *self._one_by_one(step), oldest.started_s)

    def raise_if_broken(self) -> None:
        """Raise RuntimeError if too many steps in a row failed entirely."""
        if self._num_failures >= MAX_CONSECUTIVE_FAILURES:
            raise RuntimeError(f"{self._num_failures} steps in a row failed entirely")

    def _one_by_one(self, step: Step) -> tuple[dict[str, SequenceOutput], list[str]]:
        """Run a step again, one sequence at a time. Returns its outputs, and the requests that failed.

        Sequences that have ended meanwhile are skipped, as their blocks may belong to others.
        """
        assert self.runner is not None
        outputs: dict[str, SequenceOutput] = {}
        failed: list[str] = []
        alive = [s.with_sampled_token() for s in step.sequences if self._is_alive(s)]
        for scheduled in alive:
            try:
                outputs |= self.runner.launch(Step((scheduled,))).wait()
            except RunnerDiedError:
                raise
            except Exception:
                logger.exception("a step of one sequence failed")
                failed.append(scheduled.request_id)
        if alive:
            self._num_failures = self._num_failures + 1 if len(failed) == len(alive) else 0
        return outputs, failed
