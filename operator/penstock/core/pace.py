"""How fast one engine computes prompts and tokens, as its answers show."""

import math
from dataclasses import dataclass

# What one more answer leaves of those before: a mean over fifty.
MEMORY = 0.98


@dataclass(frozen=True, slots=True)
class Pace:
    """Faded sums. prompts: tokens, and the seconds until the first token came of them. decode: the
    steps of answers, and the seconds that they took beside the prompts that came in between.

    What is not known yet holds nobody back: prompts cost nothing then, and steps neither.
    """

    prompt_tokens: float = 0.0
    prompts_s: float = 0.0
    steps: float = 0.0
    steps_s: float = 0.0

    def after_first_token(self, prompt_tokens: float, took_s: float) -> "Pace":
        """prompt_tokens: its own, and those that the engine had to compute before. They weigh as much
        as they are long, so that what one iteration takes at least tells little."""
        return Pace(
            MEMORY * self.prompt_tokens + prompt_tokens,
            MEMORY * self.prompts_s + max(0.0, took_s),
            self.steps,
            self.steps_s,
        )

    def after_answer(self, steps: int, took_s: float, prompts_s: float) -> "Pace":
        """took_s: from the first token to the last, in `steps` steps. prompts_s: how much of it the
        engine computed prompts."""
        return Pace(
            self.prompt_tokens,
            self.prompts_s,
            MEMORY * self.steps + steps,
            MEMORY * self.steps_s + max(0.0, took_s - prompts_s),
        )

    def faded(self) -> "Pace":
        """A belief about another engine of the same kind: worth one answer."""
        weight = 1 - MEMORY
        return Pace(
            weight * self.prompt_tokens,
            weight * self.prompts_s,
            weight * self.steps,
            weight * self.steps_s,
        )

    @property
    def is_known(self) -> bool:
        return self.prompts_s > 0

    @property
    def prefill_tokens_per_s(self) -> float:
        return self.prompt_tokens / self.prompts_s if self.is_known else math.inf

    @property
    def decode_s(self) -> float:
        """Of a step without prompts."""
        return self.steps_s / self.steps if self.steps else 0.0
