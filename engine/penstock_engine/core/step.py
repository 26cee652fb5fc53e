"""Input and output of one step (forward pass), as plain numbers without tensors.

The engine's runner, the simulator and tests all use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.sampling import SamplingParams

# Placeholder for the token of a sequence that the step before samples: the scheduler does not know it
# yet when it schedules ahead.
PENDING_TOKEN = (-1,)


class ScheduledSequence(NamedTuple):
    """The part of one sequence that a step computes.

    Positions [start, start + len(token_ids)) get keys and values. block_table covers them and all positions
    before them, with a null block for blocks outside the sliding window. If is_sampled, the logits of the
    last position give the token at position `end`. token_ids is PENDING_TOKEN if the step before samples the
    token at `start`.

    The last num_drafts of token_ids are drafts: each is verified with the logits of the position before it,
    and those after a rejected one are void. The runner may propose num_runner_drafts more itself; block_table
    covers them.

    A named tuple, because one is created for each sequence in each step, and a frozen dataclass takes four
    times as long.
    """

    request_id: str
    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    is_sampled: bool
    sampling: SamplingParams
    # All tokens of the sequence without drafts. It is the sequence's own list, not a copy: complete from the
    # completion of the step before until the completion of this one.
    history: Sequence[int]
    num_prompt_tokens: int
    ending_token_ids: frozenset[int] = frozenset()
    constraint: Constraint | None = None
    adapter: str = ""
    num_drafts: int = 0
    num_runner_drafts: int = 0
    wants_prompt_logprobs: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    def with_sampled_token(self) -> "ScheduledSequence":
        """Replace PENDING_TOKEN by the token that the step before, now completed, has sampled."""
        if self.token_ids != PENDING_TOKEN:
            return self
        return self._replace(token_ids=(self.history[self.start],))

    def with_drafts(self, drafts: tuple[int, ...]) -> "ScheduledSequence":
        """Add drafts that the runner proposes, at most num_runner_drafts of them."""
        return self._replace(
            token_ids=(*self.token_ids, *drafts), num_drafts=len(drafts), num_runner_drafts=0
        )

    @property
    def max_num_drafts(self) -> int:
        """Number of drafts in token_ids, and of those that the runner may add."""
        return self.num_drafts + self.num_runner_drafts

    @property
    def num_rows(self) -> int:
        """Number of positions whose logits are needed to sample a token."""
        return self.num_drafts + 1 if self.is_sampled else 0

    @property
    def drafts(self) -> tuple[int, ...]:
        return self.token_ids[len(self.token_ids) - self.num_drafts :]


@dataclass(frozen=True, slots=True)
class BlockCopies:
    """Whole blocks to copy before a step is computed, in the order of the fields.

    Each pair is (source, destination). saves: device block to host slot. restores: host slot to
    device block. forks: device block to device block.
    """

    saves: tuple[tuple[int, int], ...] = ()
    restores: tuple[tuple[int, int], ...] = ()
    forks: tuple[tuple[int, int], ...] = ()


NO_BLOCK_COPIES = BlockCopies()


@dataclass(frozen=True, slots=True)
class Step:
    """A forward pass over a batch of prefill chunks and decodes. Each sequence is in it at most once.

    block_copies: to make before it is computed.
    """

    sequences: tuple[ScheduledSequence, ...]
    block_copies: BlockCopies = NO_BLOCK_COPIES

    @property
    def num_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)

    @property
    def num_prompt_tokens(self) -> int:
        """Number of tokens in chunks that start within a prompt, recomputed ones included."""
        return sum(len(s.token_ids) for s in self.sequences if s.start < s.num_prompt_tokens)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position.

    They are natural logarithms of the model's probabilities, before the sampling parameters apply.
    rank: of the token; 1 is the most probable. top: (token, logprob) of the most probable tokens, most
    probable first. If the request names tokens (logprob_token_ids), top has this token, then those.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """Result of a step for one sequence: accepted drafts and the token sampled after them.

    token_ids is empty if the request's settings allow no token, or if logits are NaN (is_corrupt),
    including the logits behind prompt_logprobs. num_drafts: number of drafts that were verified.

    logprobs: one for each token, if requested. prompt_logprobs: of the prompt tokens at positions
    start + 1 to end. embedding: of all tokens before the sampled one, if requested.
    """

    token_ids: tuple[int, ...] = ()
    num_drafts: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    embedding: tuple[float, ...] = ()
    is_corrupt: bool = False
