"""One forward pass as plain numbers: what runner, simulator and tests all consume."""

from dataclasses import dataclass

from penstock_engine.core.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The part of one sequence that a step computes.

    Positions [start, start + len(token_ids)) get keys and values; block_table covers them and
    everything before them. When is_sampled, the logits of the last position give the token at
    position `end`; forbidden_token_ids may not be that token.
    """

    request_id: str
    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    is_sampled: bool
    sampling: SamplingParams
    forbidden_token_ids: frozenset[int] = frozenset()

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Step:
    """Prefill chunks and decodes mix freely; each sequence appears at most once."""

    sequences: tuple[ScheduledSequence, ...]

    @property
    def num_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)
