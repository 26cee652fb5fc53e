"""Decode steps of a fixed number of sequences, as the scheduler of the engine makes them."""

import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import PENDING_TOKEN, ScheduledSequence, SequenceOutput, Step
from penstock_engine.execution.pending_step import PendingStep
from penstock_engine.execution.runner import Runner

KNOWN_TOKENS = 499  # of which sequences have different ones; small vocabularies have them too


class DecodeLoad:
    """Sequences of equal length that decode a token in each step.

    Their blocks are scattered over the KV cache, as after some time of serving. They sample at random:
    equal tokens would choose the same experts, whose weights are then read once for all of them.
    """

    def __init__(
        self, num_seqs: int, first_tokens: int, num_steps: int, block_size: int, num_blocks: int
    ) -> None:
        """first_tokens: tokens of a sequence in the KV cache before the first of num_steps steps."""
        width = -(-(first_tokens + num_steps) // block_size)
        if num_seqs * width > num_blocks:
            raise ValueError(f"{num_seqs} sequences of {width} blocks, but there are {num_blocks}")
        blocks = np.random.default_rng(0).permutation(num_blocks)[: num_seqs * width]
        self._tables = [tuple(table) for table in blocks.reshape(num_seqs, width).tolist()]
        self._first_tokens = first_tokens
        self.num_steps = num_steps
        self._histories = [[1 + row % KNOWN_TOKENS] * (first_tokens + 1) for row in range(num_seqs)]
        self._sampling = [
            SamplingParams(max_tokens=num_steps, temperature=1.0, seed=row)
            for row in range(num_seqs)
        ]

    def sequences(self, index: int, *, is_pending: bool = False) -> list[ScheduledSequence]:
        """The sequences in a step. is_pending: whether the step before samples their tokens."""
        start = self._first_tokens + index
        return [
            ScheduledSequence(
                str(row), start, PENDING_TOKEN if is_pending else (history[0],), table, True,
                sampling, history, self._first_tokens,
            )
            for row, (table, history, sampling) in enumerate(
                zip(self._tables, self._histories, self._sampling, strict=True)
            )
        ]  # fmt: skip

    def steps(self) -> Iterable[Step]:
        """All steps in order. After the first, each has tokens that the one before samples."""
        for index in range(self.num_steps):
            yield Step(tuple(self.sequences(index, is_pending=index > 0)))

    def complete(self, outputs: dict[str, SequenceOutput]) -> bool:
        """Note the outputs of a step. Returns whether each sequence got one token."""
        for request_id, output in outputs.items():
            self._histories[int(request_id)].extend(output.token_ids)
        is_each = len(outputs) == len(self._histories)
        return is_each and all(len(output.token_ids) == 1 for output in outputs.values())


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of steps in seconds, each a mean or median over the measured steps.

    step_s: from the completion of a step to that of the next. launch_s, launch_cpu_s: of the call that
    launches a step, by the clock and by the processor time of its thread. is_complete: whether every
    step gave a token for each sequence.
    """

    step_s: float
    launch_s: float
    launch_cpu_s: float
    is_complete: bool


def run_steps(runner: Runner, load: DecodeLoad, num_warm_ups: int) -> StepTimes:
    """Run all steps of a load as the engine's loop does: the next one is launched before a wait.

    num_warm_ups: the number of first steps that are not measured.
    """
    in_flight: deque[PendingStep] = deque()
    completed_s: list[float] = []
    launches: list[tuple[float, float]] = []
    is_complete = True
    for step in load.steps():
        started_s, started_cpu_s = time.perf_counter(), time.thread_time()
        in_flight.append(runner.launch(step))
        launches.append((time.perf_counter() - started_s, time.thread_time() - started_cpu_s))
        if len(in_flight) >= runner.depth:
            is_complete &= load.complete(in_flight.popleft().wait())
            completed_s.append(time.perf_counter())
    while in_flight:
        is_complete &= load.complete(in_flight.popleft().wait())
        completed_s.append(time.perf_counter())
    measured = launches[num_warm_ups:]
    return StepTimes(
        _mean_interval(completed_s[num_warm_ups - 1 :]),
        statistics.median(wall_s for wall_s, _ in measured),
        statistics.median(cpu_s for _, cpu_s in measured),
        is_complete,
    )


def _mean_interval(times_s: Sequence[float]) -> float:
    return (times_s[-1] - times_s[0]) / (len(times_s) - 1)
