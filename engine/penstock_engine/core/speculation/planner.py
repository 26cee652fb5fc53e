"""Assigns drafts to the sequences of a step, and allocates the blocks for them.

The positions of drafts depend on the last token, and the length of a sequence after a step depends
on how many are accepted. So a step with drafts cannot overlap: it is scheduled only after the step
before it is completed, and the next step only after it is completed itself.
"""

from collections.abc import Sequence as Many

from penstock_engine.core.drafter import Drafter
from penstock_engine.core.kv_cache.cache import KVCache
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.speculation.draft_length import DraftLengthController
from penstock_engine.core.speculation.drafters import (
    NgramDrafter,
    SuffixDrafter,
    SuffixStoresBySalt,
)
from penstock_engine.core.step import Step

# Bound on the tokens indexed for drafting in one step. On one server core 10,000 take 26 ms for
# n-grams of 2 to 5 tokens and 84 ms for suffixes, so this many delay a step by 1.3 or 4.3 ms. A text
# of 100,000 tokens has drafts after 196 steps, the steps of its prefill included.
MAX_INDEXED_TOKENS = 512
# Tokens indexed for each sequence even beyond that bound: as many as one step can add, 32 accepted
# drafts and the token after them. So a long prompt does not delay the drafts of other sequences.
MIN_INDEXED_TOKENS = 33


class Speculation:
    """The configured drafting method, and the controller of the number of drafts."""

    def __init__(
        self,
        config: SpeculationConfig,
        controller: DraftLengthController | None = None,
    ) -> None:
        self.config = config
        self.controller = controller or DraftLengthController(config.num_speculative_tokens)
        self._stores = SuffixStoresBySalt()

    def make_drafter(self, cache_salt: str) -> Drafter | None:
        """A drafter for a new sequence; None if the runner proposes the drafts."""
        match self.config.method:
            case "ngram":
                return NgramDrafter(self.config.prompt_lookup_min, self.config.prompt_lookup_max)
            case "suffix":
                store = self._stores.get(cache_salt)
                return SuffixDrafter(store, self.config.suffix_decoding_min_token_prob)
            case "draft_model" | "eagle":
                return None


class DraftPlanner:
    """Decides which sequences of a step get drafts, and how many. Not thread-safe.

    Without speculation it assigns none.
    """

    def __init__(
        self, speculation: Speculation | None, cache: KVCache, max_num_tokens: int
    ) -> None:
        """max_num_tokens: bound on the length of a sequence, prompt and output."""
        self._speculation = speculation
        self._cache = cache
        self._max_num_tokens = max_num_tokens
        self._num_deferred = 0  # drafts per sequence for the next step that does not overlap
        self._num_planned = 0  # drafts per sequence of the last step

    @property
    def needs_completed_step(self) -> bool:
        """Whether the next step can only be scheduled after the last one is completed."""
        return bool(self._num_deferred or self._num_planned)

    def make_drafter(self, cache_salt: str) -> Drafter | None:
        """A drafter for a new sequence; None without speculation and with a draft model."""
        return None if self._speculation is None else self._speculation.make_drafter(cache_salt)

    def plan_step(self, chunks: Many[tuple[Sequence, int, int]], *, is_ahead: bool) -> int:
        """Start planning a step. Returns the maximum number of drafts for each sequence.

        A step that is scheduled ahead gets none; the number is deferred to the step after it. In both
        cases more tokens are indexed for drafting.

        chunks: sequence, first position and number of tokens, for the running sequences of the step.
        """
        if self._speculation is None:
            return 0
        num_left = MAX_INDEXED_TOKENS
        for sequence, _, _ in chunks:
            if sequence.drafter is not None:
                most = max(num_left, MIN_INDEXED_TOKENS)
                num_left -= sequence.drafter.index(sequence.tokens, most)
        if not self._num_deferred:
            num_sampling = len(
                [1 for sequence, start, _ in chunks if len(sequence.tokens) - start <= 1]
            )
            self._num_deferred = self._speculation.controller.num_drafts(max(1, num_sampling))
        self._num_planned = 0
        if not is_ahead:
            self._num_planned, self._num_deferred = self._num_deferred, 0
        return self._num_planned

    def propose(
        self, sequence: Sequence, num_tokens: int, max_drafts: int
    ) -> tuple[int, ...] | int:
        """Drafts after a chunk of num_tokens, or their maximum number if the runner proposes them.

        The blocks for them are allocated; if too few are free, there are no drafts.
        """
        if self._speculation is None or max_drafts < 1:
            return ()
        length = len(sequence.tokens)
        room = min(
            max_drafts,
            sequence.sampling.max_tokens - (length - sequence.num_prompt_tokens) - 1,
            self._max_num_tokens - length - 1,
        )
        if room < 1 or num_tokens > 1 or sequence.num_computed_tokens + 1 != length:
            return ()
        drafts = (
            room if sequence.drafter is None else sequence.drafter.propose(sequence.tokens, room)
        )
        end = length + (drafts if isinstance(drafts, int) else len(drafts))
        if end > len(sequence.block_table) * self._cache.pool.block_size:
            return drafts if self._cache.grow(sequence, end) else ()
        return drafts

    def observe_acceptance(self, num_drafts: int, num_accepted: int) -> None:
        """Pass the result of one sequence's drafts to the controller."""
        if self._speculation is not None:
            self._speculation.controller.observe_acceptance(num_drafts, num_accepted)

    def observe_step(self, step: Step, duration_s: float) -> None:
        """Pass the duration of one step to the controller."""
        if self._speculation is not None:
            num_tokens = step.num_tokens + sum(s.num_runner_drafts for s in step.sequences)
            self._speculation.controller.observe_step(num_tokens, duration_s)
