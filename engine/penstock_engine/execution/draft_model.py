"""Drafts tokens with a small draft model.

It computes every token that the target model computes, in the same step and into the same blocks of
its own KV cache. So a prefix that is cached for the target is cached for the draft model, too, and
preemption and sharing need no separate block tables.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.execution.paged_model import PagedModel, row_order


class DraftModel:
    """Proposes the draft model's most probable tokens. Not thread-safe."""

    def __init__(self, model: PagedModel) -> None:
        self.model = model

    def propose(
        self, sequences: Sequence[ScheduledSequence], sampled: torch.Tensor | None
    ) -> list[ScheduledSequence]:
        """Compute a step, and propose drafts greedily for sequences that may have some.

        sequences: in row order. sampled: token ids on the device that replace the negative ids among their
        tokens.
        Returns all sequences, with up to num_runner_drafts drafts added.
        """
        hidden = self.model.forward(sequences, sampled)
        ends = np.cumsum([sequence.num_tokens for sequence in sequences])
        requesting = [
            (sequence, int(end) - 1)
            for sequence, end in zip(sequences, ends, strict=True)
            if sequence.num_runner_drafts
        ]
        if not requesting:
            return list(sequences)
        tokens = self._best(hidden[[row for _, row in requesting]])
        drafts: dict[str, list[int]] = {
            sequence.request_id: [token]
            for (sequence, _), token in zip(requesting, tokens, strict=True)
        }
        growing = [sequence for sequence, _ in requesting]
        while growing:
            # The last draft is computed, too: if it is accepted, its keys and values are needed.
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
        sampled: torch.Tensor | None, rows: Mapping[tuple[str, int], int],
    ) -> None:  # fmt: skip
        """Do nothing: unlike a draft head, the model has computed the step's tokens in `propose`."""

    def _best(self, hidden: torch.Tensor) -> list[int]:
        tokens: list[int] = self.model.logits(hidden).argmax(-1).tolist()
        return tokens


def _next(sequence: ScheduledSequence, drafts: Sequence[int]) -> ScheduledSequence:
    """The input for the next draft: the last draft, which is not computed yet."""
    return sequence._replace(
        start=sequence.end,
        token_ids=(drafts[-1],),
        num_runner_drafts=sequence.num_runner_drafts - 1,
    )
