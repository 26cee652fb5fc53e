"""Rows of logits: the positions at which sequences sample a token."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.request_state import RequestState, TokenCounts


@dataclass(frozen=True, slots=True)
class Row:
    """A row of logits, from which a sequence samples the token at `position`.

    num_drafts: number of tokens directly before it that are drafts.
    """

    sequence: ScheduledSequence
    position: int
    num_drafts: int
    state: RequestState

    @property
    def sampling(self) -> SamplingParams:
        return self.sequence.sampling

    @property
    def num_output_tokens(self) -> int:
        return self.position - self.sequence.num_prompt_tokens

    @property
    def token_counts(self) -> TokenCounts:
        """Token counts of everything before this position."""
        return self.state.token_counts(self.sequence.drafts[: self.num_drafts])

    def output_tail(self, num_tokens: int) -> list[int]:
        """At most num_tokens of the last generated tokens before this position."""
        drafts = self.sequence.drafts[: self.num_drafts]
        history = self.sequence.history
        num_known = max(0, num_tokens - len(drafts))
        first = max(self.sequence.num_prompt_tokens, len(history) - num_known)
        return [*history[first:], *drafts][-num_tokens:] if num_tokens else []


def rows_of(sequence: ScheduledSequence, state: RequestState) -> Iterator[Row]:
    """The rows of a sequence: one for each draft, and one for the token after them."""
    first = sequence.end - sequence.num_drafts
    for index in range(sequence.num_rows):
        yield Row(sequence, first + index, index, state)
