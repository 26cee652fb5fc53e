"""Runs many iterations of a decoding batch as one step of the engine's scheduler.

Once all prompts are computed, the next iterations differ only by one more token per sequence. The
scheduler's path for speculative decoding covers them: every draft token counts as accepted. So a leap is
an ordinary step, and the sum of an arithmetic series is its duration.
"""

from dataclasses import dataclass
from math import sqrt

from penstock.sim.profile import IterationTimes
from penstock_engine.core.speculation import DraftLengthController, Speculation, SpeculationConfig

# Iterations. A leap reserves its blocks at its start, so it must be short against a sequence's length.
MAX_ITERATIONS = 64


class LeapController(DraftLengthController):
    """Draft-length controller that returns the number of drafts set by the simulated engine."""

    def __init__(self) -> None:
        super().__init__(0)
        self.drafts = 0

    def num_drafts(self, num_sequences: int) -> int:
        return self.drafts

    def observe_step(self, num_tokens: int, duration_s: float) -> None:
        """Do nothing: the simulated engine sets `drafts` itself."""


def leaping(controller: LeapController) -> Speculation:
    config = SpeculationConfig(method="draft_model", num_speculative_tokens=1, model="simulated")
    return Speculation(config, controller, after_prompts=True)


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
