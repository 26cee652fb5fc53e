"""Many iterations of a decoding batch as one step of the engine's scheduler.

After an iteration that computes all prompts there are, the next ones differ only by one more token
for each sequence. The scheduler's own path for guesses covers them: it leaves a number of guesses to
the runner, and here all of them are right. So a leap is an ordinary step, and the formula of an
arithmetic series says how long it takes.
"""

from dataclasses import dataclass
from math import sqrt

from penstock.sim.profile import IterationTimes
from penstock_engine.core.speculation import DraftLengthController, Speculation, SpeculationConfig

# Blocks for a leap are held from its start, so it is short beside what a sequence holds anyway.
MAX_ITERATIONS = 64


class LeapController(DraftLengthController):
    """Answers what the simulated engine has found to be undisturbed."""

    def __init__(self) -> None:
        super().__init__(0)
        self.drafts = 0

    def num_drafts(self, num_sequences: int) -> int:
        return self.drafts

    def observe_step(self, num_tokens: int, duration_s: float) -> None:
        """Nothing to learn: the answer is known."""


def leaping(controller: LeapController) -> Speculation:
    config = SpeculationConfig(method="draft_model", num_speculative_tokens=1, model="simulated")
    return Speculation(config, controller, after_prompts=True)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Iterations of the same sequences: `sequences` of them, `kv` tokens in the first iteration."""

    times: IterationTimes
    sequences: int
    kv: int
    begin_s: float
    factor: float

    def end_s(self, iterations: int) -> float:
        """When so many are done."""
        first, growth = self._series()
        return self.begin_s + iterations * (first + growth * (iterations - 1) / 2)

    def done(self, now: float) -> int:
        """Iterations that are done at `now`."""
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
