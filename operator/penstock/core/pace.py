"""How fast one engine computes prompts, as its answers show."""

import math
from dataclasses import dataclass

# What one more answer leaves of those before: a mean over fifty.
MEMORY = 0.98


@dataclass(frozen=True, slots=True)
class Pace:
    """Of prompts, and the seconds until the first token came of them. Both fade.

    What is not known yet holds nobody back: prompts cost nothing then.
    """

    prompt_tokens: float = 0.0
    prompts_s: float = 0.0

    def after_first_token(self, prompt_tokens: float, took_s: float) -> "Pace":
        """prompt_tokens: its own, and those that the engine had to compute before. They weigh as much
        as they are long, so that what one iteration takes at least tells little."""
        return Pace(
            MEMORY * self.prompt_tokens + prompt_tokens,
            MEMORY * self.prompts_s + max(0.0, took_s),
        )

    def faded(self) -> "Pace":
        """A belief about another engine of the same kind: worth one answer."""
        weight = 1 - MEMORY
        return Pace(weight * self.prompt_tokens, weight * self.prompts_s)

    @property
    def is_known(self) -> bool:
        return self.prompts_s > 0

    @property
    def prefill_tokens_per_s(self) -> float:
        return self.prompt_tokens / self.prompts_s if self.is_known else math.inf
