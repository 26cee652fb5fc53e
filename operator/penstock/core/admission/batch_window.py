"""Bound on the requests of batches at one engine: additive increase, multiplicative decrease.

Each sequence of a batch slows all steps of the engine; by how much depends on model, device and lengths.
So the bound follows the time of the engine's answers: it halves when one takes more than a part of what the
objectives allow, and grows by one for each window of answers to batches.
"""

from dataclasses import dataclass

# Requests of batches at an engine, from one gateway, however quick it is. By their KV cache alone, 32 of
# 1,000 tokens add a quarter to a step of an 8B model on an H100.
MAX_BATCH_SEQUENCES = 32
# Part of an answer's allowed time (TTFT, and TPOT for each further token) above which the bound halves. Of an
# engine whose mean is half of it, 99 % of the answers are within it (results/batches.md).
MAX_TIME_SHARE = 0.5


@dataclass(slots=True)
class BatchWindow:
    """Bound on the requests of batches that one gateway has at an engine. At least one is allowed."""

    size: float = float(MAX_BATCH_SEQUENCES)
    _num_sent: int = 0
    _num_sent_at_cut: int = 0

    @property
    def num_requests(self) -> int:
        return int(self.size)

    def note_sent(self) -> int:
        """Count a request of any class that is sent to the engine. Returns its number, from 1."""
        self._num_sent += 1
        return self._num_sent

    def note_answer(self, number: int, time_share: float, *, is_batch: bool) -> None:
        """Follow the time of an answer, as a part of what the objectives allow.

        number: of its request. Those that were sent before the last cut say nothing of the present size.
        """
        if time_share > MAX_TIME_SHARE:
            if number > self._num_sent_at_cut:
                self.size = max(1.0, self.size / 2)
                self._num_sent_at_cut = self._num_sent
        elif is_batch:
            self.size = min(float(MAX_BATCH_SEQUENCES), self.size + 1 / self.size)
