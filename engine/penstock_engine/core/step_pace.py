"""How many prompt tokens a step may have, so that whoever decodes meanwhile gets the next token in time.

    duration of a step = decoding + prompt token · prompt tokens

Both are learned from the steps as they are computed: the first from those without prompt tokens, the
second from what prompts add to it. What attention makes of long prompts, and of large batches, is
followed, as only the last steps count.
"""

from collections import Counter
from collections.abc import Iterable

from penstock_engine.core.sequence import Sequence

# Of the time between tokens that a sequence is willing to wait, what a step may take: the rest is for
# what its prediction does not know.
TPOT_SHARE = 0.9
# Prompts get at least so much of a step's time, in parts of what decoding takes: where that is too slow
# already, as the device is, hardly anybody gains by prompts that wait.
LEAST_SHARE = 0.25
# Weights that a step keeps after one more.
DECODING_DECAY, PROMPTS_DECAY = 0.95, 0.9
# What took no longer says nothing of how long tokens take.
LEAST_S = 1e-6


class StepPace:
    """Single owner, no locks."""

    def __init__(self) -> None:
        self._tpots: Counter[float] = Counter()  # of those that decode and mind
        self._steps = self._steps_s = 0.0
        self._tokens = self._tokens_s = 0.0

    def began(self, sequence: Sequence) -> None:
        """It has its first token."""
        if sequence.tpot_s is not None:
            self._tpots[sequence.tpot_s] += 1

    def ended(self, sequence: Sequence) -> None:
        if sequence.tpot_s is None or sequence.first_token_s is None:
            return
        self._tpots[sequence.tpot_s] -= 1
        if not self._tpots[sequence.tpot_s]:
            del self._tpots[sequence.tpot_s]

    def budget(self, most: int, num_running: int) -> int:
        """Tokens of the next step: less than `most` where prompts would keep those that decode waiting."""
        if not self._tpots:
            return most
        prompts = self.prompt_tokens(TPOT_SHARE * min(self._tpots))
        if prompts is None:
            return most
        return min(most, num_running + max(1, prompts))

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
        """So many fit into a step, or into the least part of it; None: it is not known yet."""
        if self._tokens_s < LEAST_S:
            return None
        decoding_s = self._decoding_s
        prompts_s = max(within_s - decoding_s, LEAST_SHARE * decoding_s)
        return int(prompts_s * self._tokens / self._tokens_s)

    @property
    def _decoding_s(self) -> float:
        return self._steps_s / self._steps if self._steps else 0.0

    def check(self, sequences: Iterable[Sequence]) -> None:
        """sequences: all that have not ended. Raises AssertionError when the books do not balance."""
        minding = (s.tpot_s for s in sequences if s.first_token_s is not None)
        assert self._tpots == Counter(tpot_s for tpot_s in minding if tpot_s is not None)
