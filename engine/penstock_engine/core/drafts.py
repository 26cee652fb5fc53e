"""Which sequences of a step get guesses, and how many. Blocks for them are taken if there are some.

Where guesses stand depends on the last token, and how far a sequence gets with them on which are
right. So no step with guesses is scheduled before the one before it is completed, nor one behind it.
"""

from collections.abc import Sequence as Many

from penstock_engine.core.cache import KVCache
from penstock_engine.core.drafting import Drafter
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation import Speculation
from penstock_engine.core.step import Step

# Bound on the tokens indexed for drafting in one step. On one server core 10,000 take 26 ms for
# n-grams of 2 to 5 tokens and 84 ms for suffixes, so this many delay a step by 1.3 or 4.3 ms. A text
# of 100,000 tokens has drafts after 196 steps, the steps of its prefill included.
MAX_INDEXED_TOKENS = 512
# Tokens indexed for each sequence even beyond that bound: as many as one step can add, 32 accepted
# drafts and the token after them. So a long prompt does not delay the drafts of other sequences.
MIN_INDEXED_TOKENS = 33


class Drafts:
    """Single owner, no locks."""

    def __init__(
        self, speculation: Speculation | None, cache: KVCache, max_num_tokens: int
    ) -> None:
        """max_num_tokens: of one sequence, prompt and output together."""
        self._speculation = speculation
        self._cache = cache
        self._max_num_tokens = max_num_tokens
        self._num_promised = 0  # to the next step that is not ahead
        self._num_granted = 0  # to the last step

    @property
    def keep_in_step(self) -> bool:
        """Whether the next step has to wait for the completion of the last one."""
        return bool(self._num_promised or self._num_granted)

    def drafter(self, cache_salt: str) -> Drafter | None:
        """A drafter for a new sequence; None without speculation and with a draft model."""
        return None if self._speculation is None else self._speculation.drafter(cache_salt)

    def grant(self, chunks: Many[tuple[Sequence, int, int]], *, is_ahead: bool) -> int:
        """Number of draft tokens that each sequence of the next step may have. chunks: of running
        sequences.

        A step that is scheduled ahead gets none, but the step after it gets what it would have had.
        In both cases more tokens are indexed for drafting.
        """
        if self._speculation is None:
            return 0
        num_left = MAX_INDEXED_TOKENS
        for sequence, _, _ in chunks:
            if sequence.drafter is not None:
                most = max(num_left, MIN_INDEXED_TOKENS)
                num_left -= sequence.drafter.index(sequence.tokens, most)
        if not self._num_promised:
            num_drawing = len(
                [1 for sequence, start, _ in chunks if len(sequence.tokens) - start <= 1]
            )
            self._num_promised = self._speculation.governor.num_drafts(max(1, num_drawing))
        self._num_granted = 0
        if not is_ahead:
            self._num_granted, self._num_promised = self._num_promised, 0
        return self._num_granted

    def of(self, sequence: Sequence, num_tokens: int, max_drafts: int) -> tuple[int, ...] | int:
        """Guesses beyond its chunk of num_tokens, or how many the runner may make.

        With blocks for them, if there are free ones.
        """
        speculation = self._speculation
        if speculation is None or max_drafts < 1:
            return ()
        length = len(sequence.tokens)
        room = min(
            max_drafts,
            sequence.sampling.max_tokens - (length - sequence.num_prompt_tokens) - 1,
            self._max_num_tokens - length - 1,
        )
        if room < 1 or sequence.num_computed_tokens + num_tokens != length:
            return ()
        if num_tokens > 1 and not speculation.after_prompts:
            return ()
        drafts = (
            room if sequence.drafter is None else sequence.drafter.propose(sequence.tokens, room)
        )
        end = length + (drafts if isinstance(drafts, int) else len(drafts))
        if end > len(sequence.block_table) * self._cache.pool.block_size:
            return drafts if self._cache.grow(sequence, end) else ()
        return drafts

    def judged(self, num_drafts: int, num_right: int) -> None:
        if self._speculation is not None:
            self._speculation.governor.judged(num_drafts, num_right)

    def timed(self, step: Step, duration_s: float) -> None:
        if self._speculation is not None:
            num_tokens = step.num_tokens + sum(s.num_open_drafts for s in step.sequences)
            self._speculation.governor.timed(num_tokens, duration_s)
