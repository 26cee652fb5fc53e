"""Slowdown of an engine's waiting prompts: their times as a multiple of what their tokens alone would take.

Prompts also wait for room in the KV cache, and for a place among the engine's sequences. How long, gateways
cannot know, but while prompts wait, first tokens come as often as the engine admits sequences.
"""

from dataclasses import dataclass

# Weight of the earlier first tokens with each new one: a mean over about ten.
MEMORY = 0.9
# Least time of a prompt, in seconds: of one that is cached, an iteration is left.
LEAST_PROMPT_S = 0.005
# Bound of the factor, by which a prediction is multiplied.
MAX_SLOWDOWN = 1000.0


@dataclass(slots=True)
class PromptSlowdown:
    """Times between first tokens while prompts waited, and what their tokens take; both decay."""

    gaps_s: float = 0.0
    tokens_s: float = 0.0

    @property
    def factor(self) -> float:
        """Factor of the time of the prompts ahead; 1 if tokens are all that they wait for."""
        if self.gaps_s <= self.tokens_s:
            return 1.0
        return min(MAX_SLOWDOWN, self.gaps_s / self.tokens_s)

    def note(self, gap_s: float, prompt_s: float) -> None:
        """Add a first token. gap_s: since the last one. prompt_s: time of the prompt's tokens."""
        self.gaps_s = MEMORY * self.gaps_s + gap_s
        self.tokens_s = MEMORY * self.tokens_s + max(LEAST_PROMPT_S, prompt_s)

    def reset(self) -> None:
        """Start again, as no prompt waits any more."""
        self.gaps_s = self.tokens_s = 0.0
