"""Estimates an engine's prefill throughput from the first-token times of its answers."""

import math
from dataclasses import dataclass

# Decay of the sums per answer: about a mean over fifty answers.
MEMORY = 0.98
# Bound on the weight of one answer, in multiples of the mean weight of those remembered. One answer
# moves an estimate over fifty answers by at most 16 %, one over ten by 80 %, so that a first answer,
# which may be a warm-up, is soon outweighed.
MAX_MEANS = 8.0


@dataclass(frozen=True, slots=True)
class PrefillThroughput:
    """Prefill throughput estimate of an engine: prompt tokens over the seconds to their first token.

    Both sums and the number of answers decay exponentially. Before the first answer prefill counts as
    free, so that no request waits.
    """

    prompt_tokens: float = 0.0
    prompts_s: float = 0.0
    answers: float = 1.0

    def after_first_token(self, prompt_tokens: float, took_s: float) -> "PrefillThroughput":
        """Add one answer. prompt_tokens: its own and those that the engine had to prefill before.

        An answer weighs as much as its tokens, so that the fixed cost of an iteration matters little. One
        without tokens says nothing: as the first one it would be a throughput of 0 for good.
        """
        if prompt_tokens <= 0:
            return self
        took_s = max(0.0, took_s)
        if not self.is_known:
            return PrefillThroughput(prompt_tokens, took_s)
        share = MAX_MEANS / self.answers
        weight = min(
            1.0,
            share * self.prompt_tokens / max(prompt_tokens, 1e-9),
            share * self.prompts_s / max(took_s, 1e-9),
        )
        return PrefillThroughput(
            MEMORY * self.prompt_tokens + weight * prompt_tokens,
            MEMORY * self.prompts_s + weight * took_s,
            MEMORY * self.answers + 1,
        )

    def as_prior(self) -> "PrefillThroughput":
        """The estimate as a prior for another engine of the kind, with the weight of one answer."""
        return PrefillThroughput(self.prompt_tokens / self.answers, self.prompts_s / self.answers)

    @property
    def is_known(self) -> bool:
        return self.prompts_s > 0

    @property
    def prefill_tokens_per_s(self) -> float:
        return self.prompt_tokens / self.prompts_s if self.is_known else math.inf
