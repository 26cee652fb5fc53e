"""How many prompt tokens a step may have, so that whoever decodes meanwhile gets the next token in time.

    duration of a step = decoding + prompt token · prompt tokens

Both are learned from the steps as they are computed: the first from those without prompt tokens, the
second from what prompts add to it. What attention makes of long prompts, and of large batches, is
followed, as only the last steps count.
"""

# Weights that a step keeps after one more.
DECODING_DECAY, PROMPTS_DECAY = 0.95, 0.9
# What took no longer says nothing of how long tokens take.
LEAST_S = 1e-6


class StepPace:
    """Single owner, no locks."""

    def __init__(self) -> None:
        self._steps = self._steps_s = 0.0
        self._tokens = self._tokens_s = 0.0

    def timed(self, prompt_tokens: int, duration_s: float) -> None:
        """Of one step in which some sequence decoded, or computed its prompt."""
        if not prompt_tokens:
            self._steps = DECODING_DECAY * self._steps + 1
            self._steps_s = DECODING_DECAY * self._steps_s + duration_s
            return
        self._tokens = PROMPTS_DECAY * self._tokens + prompt_tokens
        more_s = max(0.0, duration_s - self._decoding_s)
        self._tokens_s = PROMPTS_DECAY * self._tokens_s + more_s

    def prompt_tokens(self, within_s: float) -> int | None:
        """So many fit into a step; None: it is not known yet."""
        if self._tokens_s < LEAST_S:
            return None
        return max(0, int((within_s - self._decoding_s) * self._tokens / self._tokens_s))

    @property
    def _decoding_s(self) -> float:
        return self._steps_s / self._steps if self._steps else 0.0
