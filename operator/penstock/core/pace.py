"""How fast one engine computes prompts and tokens, as its answers show."""

import math
from dataclasses import dataclass

from penstock.core.step_times import NO_STEPS, StepTimes

# What one more answer leaves of those before: a mean over fifty.
MEMORY = 0.98


@dataclass(frozen=True, slots=True)
class Pace:
    """prompt_tokens, prompts_s: of prompts, and the seconds until the first token came of them. steps:
    of answers, beside the time of the prompts that came in between. All of it fades.

    What is not known yet holds nobody back: prompts cost nothing then, and steps neither.
    """

    prompt_tokens: float = 0.0
    prompts_s: float = 0.0
    steps: StepTimes = NO_STEPS

    def after_first_token(self, prompt_tokens: float, took_s: float) -> "Pace":
        """prompt_tokens: its own, and those that the engine had to compute before. They weigh as much
        as they are long, so that what one iteration takes at least tells little."""
        return Pace(
            MEMORY * self.prompt_tokens + prompt_tokens,
            MEMORY * self.prompts_s + max(0.0, took_s),
            self.steps,
        )

    def after_answer(self, steps: int, took_s: float, prompts_s: float, kv_tokens: float) -> "Pace":
        """took_s: from the first token to the last, in `steps` steps. prompts_s: how much of it the
        engine computed prompts. kv_tokens: that it held meanwhile, for all of its requests."""
        decoding_s = max(0.0, took_s - prompts_s)
        faded = self.steps.times(MEMORY)
        return Pace(self.prompt_tokens, self.prompts_s, faded.after(steps, kv_tokens, decoding_s))

    def faded(self) -> "Pace":
        """A belief about another engine of the same kind: worth one answer."""
        weight = 1 - MEMORY
        return Pace(weight * self.prompt_tokens, weight * self.prompts_s, self.steps.times(weight))

    @property
    def is_known(self) -> bool:
        return self.prompts_s > 0

    @property
    def prefill_tokens_per_s(self) -> float:
        return self.prompt_tokens / self.prompts_s if self.is_known else math.inf

    def decode_s(self, kv_tokens: float) -> float:
        """Of a step without prompts, while the engine holds so many tokens."""
        return self.steps.step_s(kv_tokens)
