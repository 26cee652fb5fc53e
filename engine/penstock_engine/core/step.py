"""One forward pass as plain numbers: what runner, simulator and tests all consume."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.sampling import SamplingParams

# The tokens of a sequence that a step computes before anybody but the device knows which they are:
# one, that the step before draws.
TO_BE_DRAWN = (-1,)


class ScheduledSequence(NamedTuple):
    """The part of one sequence that a step computes.

    Positions [start, start + len(token_ids)) get keys and values; block_table covers them and
    everything before them, but names any block where none of them sees. When is_sampled, the logits
    of the last position give the token at position `end`.

    The last num_drafts of token_ids are guesses: the logits of the position before each say
    whether it was right, and those after a wrong one are void. For num_open_drafts more the runner
    may guess itself; block_table covers them.

    A named tuple, because one is made for each sequence in each step, and a frozen dataclass takes
    four times as long.

    token_ids is TO_BE_DRAWN where the step before draws the token at `start`.

    history: all tokens of the sequence without drafts. It is the sequence's own list, not a copy:
    complete from when the step before is completed until this one is.
    """

    request_id: str
    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    is_sampled: bool
    sampling: SamplingParams
    history: Sequence[int]
    num_prompt_tokens: int
    ending_token_ids: frozenset[int] = frozenset()
    constraint: Constraint | None = None
    adapter: str = ""
    num_drafts: int = 0
    num_open_drafts: int = 0
    wants_prompt_logprobs: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    def known(self) -> "ScheduledSequence":
        """With the token that was drawn for it, when the step before is completed."""
        if self.token_ids != TO_BE_DRAWN:
            return self
        return self._replace(token_ids=(self.history[self.start],))

    def with_drafts(self, drafts: tuple[int, ...]) -> "ScheduledSequence":
        """As the runner guesses them, for at most num_open_drafts."""
        return self._replace(
            token_ids=(*self.token_ids, *drafts), num_drafts=len(drafts), num_open_drafts=0
        )

    @property
    def num_all_drafts(self) -> int:
        return self.num_drafts + self.num_open_drafts

    @property
    def num_rows(self) -> int:
        """Positions whose logits draw a token."""
        return self.num_drafts + 1 if self.is_sampled else 0

    @property
    def drafts(self) -> tuple[int, ...]:
        return self.token_ids[len(self.token_ids) - self.num_drafts :]


@dataclass(frozen=True, slots=True)
class Moves:
    """Whole blocks to copy before anything is computed, in this order; (from, to) each.

    saves: device to host. restores: host to device. forks: device to device.
    """

    saves: tuple[tuple[int, int], ...] = ()
    restores: tuple[tuple[int, int], ...] = ()
    forks: tuple[tuple[int, int], ...] = ()


NO_MOVES = Moves()


@dataclass(frozen=True, slots=True)
class Step:
    """Prefill chunks and decodes mix freely; each sequence appears at most once."""

    sequences: tuple[ScheduledSequence, ...]
    moves: Moves = NO_MOVES

    @property
    def num_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)

    @property
    def num_prompt_tokens(self) -> int:
        """Of prompts, and of what preempted sequences compute once more."""
        return sum(len(s.token_ids) for s in self.sequences if s.start < s.num_prompt_tokens)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of the model's own probabilities, before any setting of the request.

    rank: 1 for the most probable. top: (token, logprob) of the best, best first; where the request
    names tokens, of this one and then of those.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one sequence got from a step: right drafts and the token after them.

    No token: its request left nothing to draw, or the model gave no numbers, also for a token of
    the prompt that was asked about (is_corrupt).
    num_drafts: that were tried.

    logprobs: one for each token, when asked for. prompt_logprobs: of the tokens at positions
    start + 1 to end, as far as they belong to the prompt. embedding: of all tokens before the
    drawn one, when asked for.
    """

    token_ids: tuple[int, ...] = ()
    num_drafts: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    embedding: tuple[float, ...] = ()
    is_corrupt: bool = False
