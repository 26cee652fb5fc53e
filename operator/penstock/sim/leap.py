"""Duration of many iterations of a decoding batch.

Once all prompts are computed, the next iterations differ only by one more token per sequence, so that the sum
of an arithmetic series is their duration.
"""

from dataclasses import dataclass
from math import sqrt

from penstock.sim.profile import IterationTimes

# Iterations. A leap reserves its blocks at its start, so it must be short against a sequence's length.
MAX_ITERATIONS = 64


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive iterations of the same sequences. kv: tokens attended to in the first iteration."""

    times: IterationTimes
    sequences: int
    kv: int
    begin_s: float
    factor: float

    def end_s(self, iterations: int) -> float:
        """Time at which this many iterations are done."""
        first, growth = self._series()
        return self.begin_s + iterations * (first + growth * (iterations - 1) / 2)

    def done(self, now: float) -> int:
        """Number of iterations done at `now`."""
        first, growth = self._series()
        elapsed = now - self.begin_s
        if elapsed <= 0:
            return 0
        # growth/2·n² + (first - growth/2)·n = elapsed
        linear = first - growth / 2
        root = 2 * elapsed / (linear + sqrt(linear * linear + 2 * growth * elapsed))
        return int(root + 1e-9)

    def _series(self) -> tuple[float, float]:
        first = self.times.iteration_s(0, 0.0, self.sequences, self.kv) * self.factor
        return first, self.times.kv_token_s * self.sequences * self.factor
