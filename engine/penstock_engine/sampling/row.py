"""One position at which one sequence draws a token."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence


@dataclass(frozen=True, slots=True)
class Row:
    """The token to draw has index `position`; num_drafts of those before it are guesses."""

    sequence: ScheduledSequence
    position: int
    num_drafts: int

    @property
    def sampling(self) -> SamplingParams:
        return self.sequence.sampling

    @property
    def num_output_tokens(self) -> int:
        return self.position - self.sequence.num_prompt_tokens

    @property
    def tokens(self) -> list[int]:
        """All tokens before this position."""
        return [*self.sequence.history, *self.sequence.drafts[: self.num_drafts]]


def rows_of(sequence: ScheduledSequence) -> Iterator[Row]:
    first = sequence.end - sequence.num_drafts
    for index in range(sequence.num_rows):
        yield Row(sequence, first + index, index)
