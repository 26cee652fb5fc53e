"""Limits the prompt tokens of a step, so that decoding sequences get their next token in time.

    duration of a step = duration of a decode step + prompt tokens · duration of a prompt token

Both durations are estimated from earlier steps with exponential decay: the first from steps without
prompt tokens, the second from the additional time of steps with them. Because only recent steps
count, the estimates follow the cost of attention to long prompts and of large batches.
"""

from collections import Counter
from collections.abc import Iterable

from penstock_engine.core.sequence import Sequence

# Fraction of the smallest requested time per output token that a step may take. The rest is a margin
# for errors of the estimate.
MAX_TPOT_FRACTION = 0.9
# Prompts always get at least this fraction of the duration of a decode step. If decoding alone is already
# too slow, holding prompts back gains little.
MIN_PREFILL_FRACTION = 0.25
# Weights of a decode step, and of a step with prompt tokens, after one more of its kind.
DECODING_DECAY, PROMPTS_DECAY = 0.95, 0.9
# Total duration of prompt tokens below which they are too few for an estimate.
MIN_OBSERVED_S = 1e-6


class PrefillBudget:
    """Estimates step durations and bounds the token budget by them. Not thread-safe."""

    def __init__(self) -> None:
        self._tpots: Counter[float] = Counter()  # of the decoding sequences that have a limit
        self._steps = self._steps_s = 0.0
        self._tokens = self._tokens_s = 0.0

    def add_decoding(self, sequence: Sequence) -> None:
        """Apply the limit of a sequence from its first token on."""
        if sequence.tpot_s is not None:
            self._tpots[sequence.tpot_s] += 1

    def remove_decoding(self, sequence: Sequence) -> None:
        """Remove the limit of a sequence that ends, if it had its first token."""
        if sequence.tpot_s is None or sequence.first_token_s is None:
            return
        self._tpots[sequence.tpot_s] -= 1
        if not self._tpots[sequence.tpot_s]:
            del self._tpots[sequence.tpot_s]

    def token_budget(self, max_tokens: int, num_running: int) -> int:
        """Maximum number of tokens of the next step: max_tokens, or fewer to keep the limits."""
        if not self._tpots:
            return max_tokens
        prompts = self.max_prompt_tokens(MAX_TPOT_FRACTION * min(self._tpots))
        if prompts is None:
            return max_tokens
        return min(max_tokens, num_running + max(1, prompts))

    def observe_step(self, prompt_tokens: int, duration_s: float) -> None:
        """Learn from the duration of one step that decoded or computed prompt tokens."""
        if not prompt_tokens:
            self._steps = DECODING_DECAY * self._steps + 1
            self._steps_s = DECODING_DECAY * self._steps_s + duration_s
            return
        self._tokens = PROMPTS_DECAY * self._tokens + prompt_tokens
        more_s = max(0.0, duration_s - self._decoding_s)
        self._tokens_s = PROMPTS_DECAY * self._tokens_s + more_s

    def max_prompt_tokens(self, duration_s: float) -> int | None:
        """Number of prompt tokens that fit into a step of this duration; None: not known yet.

        At least as many as fit into MIN_PREFILL_FRACTION of the duration of a decode step.
        """
        if self._tokens_s < MIN_OBSERVED_S:
            return None
        decoding_s = self._decoding_s
        prompts_s = max(duration_s - decoding_s, MIN_PREFILL_FRACTION * decoding_s)
        return int(prompts_s * self._tokens / self._tokens_s)

    @property
    def _decoding_s(self) -> float:
        return self._steps_s / self._steps if self._steps else 0.0

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Raise AssertionError unless the limits are those of the decoding sequences.

        sequences: all that have not ended.
        """
        limits = (s.tpot_s for s in sequences if s.first_token_s is not None)
        assert self._tpots == Counter(tpot_s for tpot_s in limits if tpot_s is not None)
