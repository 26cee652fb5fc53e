"""How fast one engine computes prompts, as its answers show."""

import math
from dataclasses import dataclass

# What one more answer leaves of those before: a mean over fifty.
MEMORY = 0.98
# What one answer may add, in means of those remembered: one moves a pace of fifty answers by at most 16 %,
# one of ten by 80 %. A first answer, which may be a warm-up, is soon overruled.
MAX_MEANS = 8.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Of prompts, and the seconds until the first token came of them. Both fade. answers: how many of
    them are remembered, faded likewise.

    What is not known yet holds nobody back: prompts cost nothing then.
    """

    prompt_tokens: float = 0.0
    prompts_s: float = 0.0
    answers: float = 1.0

    def after_first_token(self, prompt_tokens: float, took_s: float) -> "Pace":
        """prompt_tokens: its own, and those that the engine had to compute before. They weigh as much
        as they are long, so that what one iteration takes at least tells little."""
        took_s = max(0.0, took_s)
        if not self.is_known:
            return Pace(prompt_tokens, took_s)
        share = MAX_MEANS / self.answers
        weight = min(
            1.0,
            share * self.prompt_tokens / max(prompt_tokens, 1e-9),
            share * self.prompts_s / max(took_s, 1e-9),
        )
        return Pace(
            MEMORY * self.prompt_tokens + weight * prompt_tokens,
            MEMORY * self.prompts_s + weight * took_s,
            MEMORY * self.answers + 1,
        )

    def faded(self) -> "Pace":
        """A belief about another engine of the same kind: worth one answer."""
        return Pace(self.prompt_tokens / self.answers, self.prompts_s / self.answers)

    @property
    def is_known(self) -> bool:
        return self.prompts_s > 0

    @property
    def prefill_tokens_per_s(self) -> float:
        return self.prompt_tokens / self.prompts_s if self.is_known else math.inf
