"""A small model that guesses what a large one will say.

It reads every token that the large one reads, in the same step and into the same blocks of a cache
of its own. So whatever the large model finds in its prefix cache, the small one finds in its own,
and preemption and sharing need no second set of books.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.paged_model import PagedModel, row_order


class DraftModel:
    def __init__(self, model: PagedModel) -> None:
        self.model = model

    def guess(
        self, sequences: Sequence[ScheduledSequence], drawn: torch.Tensor | None
    ) -> list[ScheduledSequence]:
        """Fills the open drafts of sequences that are in row order, with its best tokens.

        drawn: what awaited ones among their tokens are. A guess is certain of itself:
        whether it is right, the large model's draw decides.
        """
        hidden = self.model.forward(sequences, drawn)
        ends = np.cumsum([sequence.num_tokens for sequence in sequences])
        asked = [
            (sequence, int(end) - 1)
            for sequence, end in zip(sequences, ends, strict=True)
            if sequence.num_runner_drafts
        ]
        if not asked:
            return list(sequences)
        tokens = self._best(hidden[[row for _, row in asked]])
        drafts: dict[str, list[int]] = {
            sequence.request_id: [token] for (sequence, _), token in zip(asked, tokens, strict=True)
        }
        growing = [sequence for sequence, _ in asked]
        while growing:
            # The last guess is read too: where it is right, its keys and values are needed.
            growing = sorted((_next(s, drafts[s.request_id]) for s in growing), key=row_order)
            hidden = self.model.forward(growing)
            rows = [row for row, s in enumerate(growing) if s.num_runner_drafts]
            growing = [growing[row] for row in rows]
            if rows:
                for sequence, token in zip(growing, self._best(hidden[rows]), strict=True):
                    drafts[sequence.request_id].append(token)
        return [s.with_drafts(tuple(drafts.get(s.request_id, ()))) for s in sequences]

    def read(
        self, sequences: Sequence[ScheduledSequence], hidden: torch.Tensor,
        drawn: torch.Tensor | None, rows: Mapping[tuple[str, int], int],
    ) -> None:  # fmt: skip
        """Nothing to do: it has read the step's tokens itself."""

    def _best(self, hidden: torch.Tensor) -> list[int]:
        tokens: list[int] = self.model.logits(hidden).argmax(-1).tolist()
        return tokens


def _next(sequence: ScheduledSequence, drafts: Sequence[int]) -> ScheduledSequence:
    """The one guess that was not read yet."""
    return sequence._replace(
        start=sequence.end,
        token_ids=(drafts[-1],),
        num_runner_drafts=sequence.num_runner_drafts - 1,
    )
