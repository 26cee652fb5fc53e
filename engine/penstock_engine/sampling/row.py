"""One position at which one sequence draws a token."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.request_state import RequestState, TokenCounts


@dataclass(frozen=True, slots=True)
class Row:
    """The token to draw has index `position`; num_drafts of those before it are guesses."""

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
        """The last so many generated tokens before this position, or all of them."""
        drafts = self.sequence.drafts[: self.num_drafts]
        history = self.sequence.history
        num_known = max(0, num_tokens - len(drafts))
        first = max(self.sequence.num_prompt_tokens, len(history) - num_known)
        return [*history[first:], *drafts][-num_tokens:] if num_tokens else []


def rows_of(sequence: ScheduledSequence, state: RequestState) -> Iterator[Row]:
    first = sequence.end - sequence.num_drafts
    for index in range(sequence.num_rows):
        yield Row(sequence, first + index, index, state)
