"""Steps that were scheduled and are not completed yet: at most two, in the order of their computing.

While one is computed, the next may be scheduled on what is known of it beforehand: how far each
sequence gets, and that its last position draws a token, though not which.
"""

from collections import deque
from collections.abc import Mapping

from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import ScheduledSequence, Step

NOTHING: Mapping[str, ScheduledSequence] = {}


class OpenSteps:
    """Single owner, no locks."""

    def __init__(self, sequences: Mapping[str, Sequence]) -> None:
        """sequences: all that have not ended, by id; read, and never written."""
        self._sequences = sequences
        self._steps: deque[tuple[Step, float]] = deque()
        self._closed_s = 0.0

    def open(self, step: Step, now: float) -> None:
        self._steps.append((step, now))

    def close(self, step: Step, now: float) -> float:
        """The oldest is completed. Returns the seconds that passed only for it."""
        oldest, opened_s = self._steps.popleft()
        assert oldest is step, "steps are completed in the order in which they were scheduled"
        duration_s = now - max(opened_s, self._closed_s)
        self._closed_s = now
        return duration_s

    def newest(self) -> Mapping[str, ScheduledSequence]:
        """What the one open step computes of sequences that have not ended, by id."""
        if not self._steps:
            return NOTHING
        assert len(self._steps) == 1, "a step is scheduled at most one ahead"
        [(step, _)] = self._steps
        return {s.request_id: s for s in step.sequences if self.is_alive(s)}

    def is_alive(self, scheduled: ScheduledSequence) -> bool:
        """Whether its sequence has not ended: another may have its name by now, but not its tokens."""
        sequence = self._sequences.get(scheduled.request_id)
        return sequence is not None and sequence.tokens is scheduled.history

    def check(self) -> None:
        """Raises AssertionError when a sequence has not all blocks that an open step writes to."""
        for step, _ in self._steps:
            for scheduled in filter(self.is_alive, step.sequences):
                table = self._sequences[scheduled.request_id].block_table
                known = scheduled.block_table
                assert tuple(table[: len(known)]) == known, "blocks changed hands in an open step"
