"""Steps that are scheduled and not completed yet: at most two, in the order of their computation.

While one step is computed, the next can be scheduled: the number of tokens that each sequence will
have is known, only the token that its last position samples is not.
"""

from collections import deque
from collections.abc import Mapping

from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import ScheduledSequence, Step

NO_SEQUENCES: Mapping[str, ScheduledSequence] = {}


class InFlightSteps:
    """Queue of the scheduled steps. Not thread-safe."""

    def __init__(self, sequences: Mapping[str, Sequence]) -> None:
        """sequences: all that have not ended, by request id; a live view that is only read."""
        self._sequences = sequences
        self._steps: deque[tuple[Step, float]] = deque()
        self._completed_s = 0.0

    def add(self, step: Step, now: float) -> None:
        """Add a step that was scheduled at `now`."""
        self._steps.append((step, now))

    def complete(self, step: Step, now: float) -> float:
        """Remove the oldest step. Returns its duration in seconds.

        The duration starts when the step was scheduled or the one before it was completed, whichever
        is later, so that no time is counted for two steps.
        """
        oldest, scheduled_s = self._steps.popleft()
        assert oldest is step, "steps are completed in the order in which they were scheduled"
        duration_s = now - max(scheduled_s, self._completed_s)
        self._completed_s = now
        return duration_s

    def sequences_in_flight(self) -> Mapping[str, ScheduledSequence]:
        """The parts of the only step in flight whose sequences have not ended, by request id."""
        if not self._steps:
            return NO_SEQUENCES
        assert len(self._steps) == 1, "a step is scheduled at most one ahead"
        [(step, _)] = self._steps
        return {s.request_id: s for s in step.sequences if self.is_alive(s)}

    def is_alive(self, scheduled: ScheduledSequence) -> bool:
        """Whether the sequence has not ended.

        A later sequence may have the same request id, but it has another list of tokens.
        """
        sequence = self._sequences.get(scheduled.request_id)
        return sequence is not None and sequence.tokens is scheduled.history

    def check(self) -> None:
        """Raise AssertionError if a sequence does not hold all blocks that its step in flight uses."""
        for step, _ in self._steps:
            for scheduled in filter(self.is_alive, step.sequences):
                table = self._sequences[scheduled.request_id].block_table
                known = scheduled.block_table
                assert tuple(table[: len(known)]) == known, "block table changed in flight"
