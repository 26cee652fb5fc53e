"""Duration of a run of iterations of a decoding batch.

Once all prompts are computed, the next iterations differ only by one more token per sequence, so that the sum
of an arithmetic series is their duration.
"""

from math import sqrt

from penstock.sim.profile import IterationTimes

# Iterations. A leap reserves its blocks at its start, so it must be short against a sequence's length.
MAX_ITERATIONS = 64


class DecodeRun:
    """Consecutive iterations of the same sequences. kv: tokens attended to in the first iteration."""

    __slots__ = ("_first_s", "_growth_s", "begin_s", "factor", "sequences", "times")

    def __init__(
        self, times: IterationTimes, sequences: int, kv: int, begin_s: float, factor: float
    ) -> None:
        self.times = times
        self.sequences = sequences
        self.begin_s = begin_s
        self.factor = factor
        self._first_s = times.iteration_s(0, 0.0, sequences, kv) * factor
        self._growth_s = times.kv_token_s * sequences * factor  # from one iteration to the next

    def end_s(self, iterations: int) -> float:
        """Time at which this many iterations are done."""
        return self.begin_s + iterations * (self._first_s + self._growth_s * (iterations - 1) / 2)

    def done(self, now: float) -> int:
        """Number of iterations done at `now`."""
        elapsed = now - self.begin_s
        if elapsed <= 0:
            return 0
        # growth/2·n² + (first - growth/2)·n = elapsed
        linear = self._first_s - self._growth_s / 2
        root = 2 * elapsed / (linear + sqrt(linear * linear + 2 * self._growth_s * elapsed))
        return int(root + 1e-9)
