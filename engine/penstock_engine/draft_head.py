"""Guesses by a small head that reads the large model's hidden states (models/draft_head.py).

The head reads a position when the large model has computed its hidden state and drawn the token
behind it; so after each step it reads what the step computed, into the same blocks of a cache of its
own. The guess at the last position is the first draft; each further one takes one pass over one token
of each sequence. Tokens and states stay on the device until all guesses are made.

Of blocks that are found in the prefix cache, the last position was read with another token behind it.
That may cost a right guess, and never changes a token.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.pending_tokens import pending_token_id
from penstock_engine.loading import load_weights
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.draft_head import DraftHeadDecoder
from penstock_engine.paged_model import PagedModel
from penstock_engine.runner_config import RunnerConfig
from penstock_engine.weights import Checkpoint

# Where a token of a sequence stands among drawn ones, by its id and position.
Rows = Mapping[tuple[str, int], int]


class DraftHead:
    """One thread at a time, that of the runner."""

    def __init__(self, model: PagedModel, target: PagedModel) -> None:
        """model: the head and its cache. target: the large model."""
        self.model = model
        self._target = target
        self._read: torch.Tensor | None = None
        self._row_of: dict[tuple[str, int], int] = {}  # by id and position, in what was read last

    @classmethod
    def load(cls, config: RunnerConfig, target: PagedModel) -> "DraftHead":
        """config: with the head's folder. Raises ModelError."""
        own = ModelConfig.load(config.model_dir)
        dtype: torch.dtype = getattr(torch, config.dtype)
        if not isinstance(target.decoder, DecoderForCausalLM):
            raise ModelError("DraftMismatch", "a head drafts for a model that is in one place")
        with Checkpoint(config.model_dir) as checkpoint:
            has_bias = "fc.bias" in checkpoint
        decoder = DraftHeadDecoder(
            own, target.decoder, has_bias=has_bias, max_positions=config.max_model_len,
            dtype=dtype, device=config.device,
        )  # fmt: skip
        load_weights(decoder, config.model_dir, own.family.names, dtype, config.device)
        return cls(PagedModel(decoder, config), target)

    def read(
        self, sequences: Sequence[ScheduledSequence], hidden: torch.Tensor,
        drawn: torch.Tensor | None, rows: Rows,
    ) -> None:  # fmt: skip
        """A step that was computed and drawn.

        sequences, hidden: as of its forward pass. drawn, rows: its tokens.
        """
        behind = [_shifted(sequence, rows) for sequence in sequences]
        received = self._target.normed(hidden)
        self._read = self.model.forward(behind, drawn, received)
        self._row_of = {}
        first = 0
        for sequence in sequences:
            for offset in range(sequence.num_tokens - sequence.num_rows, sequence.num_tokens):
                self._row_of[sequence.request_id, sequence.start + offset] = first + offset
            first += sequence.num_tokens

    def guess(
        self, sequences: Sequence[ScheduledSequence], drawn: torch.Tensor | None
    ) -> list[ScheduledSequence]:
        """Fills the open drafts of sequences whose last step was the one read last."""
        asked = [
            s
            for s in sequences
            if s.num_runner_drafts and (s.request_id, s.start - 1) in self._row_of
        ]
        if self._read is None or not asked:
            return [sequence.with_drafts(()) for sequence in sequences]
        places = [self._row_of[s.request_id, s.start - 1] for s in asked]
        states = self._read[self._index(places)]
        made: list[tuple[list[ScheduledSequence], torch.Tensor]] = []
        growing = asked
        while True:
            tokens = self.model.logits(states).argmax(-1)
            made.append((growing, tokens))
            kept = [i for i, s in enumerate(growing) if s.num_runner_drafts > 1]
            if not kept:
                break
            growing = [_next(growing[i], i) for i in kept]
            states = self.model.forward(growing, tokens, states[self._index(kept)])
        drafts: dict[str, list[int]] = {}
        for owners, tokens in made:
            for owner, token in zip(owners, tokens.tolist(), strict=True):
                drafts.setdefault(owner.request_id, []).append(token)
        return [s.with_drafts(tuple(drafts.get(s.request_id, ()))) for s in sequences]

    def _index(self, places: Sequence[int]) -> torch.Tensor:
        return send(torch.from_numpy(np.array(places, dtype=np.int64)), self.model.device)


def _shifted(sequence: ScheduledSequence, rows: Rows) -> ScheduledSequence:
    """With the tokens behind its own."""
    num_rows = sequence.num_rows
    end_known = sequence.end - num_rows
    known = sequence.history[sequence.start + 1 : end_known + 1]
    first = rows[sequence.request_id, sequence.end] if num_rows else 0
    drawn = (pending_token_id(first + row) for row in range(num_rows))
    return sequence._replace(token_ids=(*known, *drawn), num_drafts=0, num_runner_drafts=0)


def _next(sequence: ScheduledSequence, row: int) -> ScheduledSequence:
    """The position behind its last guess, which stands at `row` of those made last.

    A sequence has its last known token before the first guess, and one guess from then on.
    """
    is_first = sequence.num_drafts == 0
    return sequence._replace(
        start=sequence.start if is_first else sequence.start + 1,
        token_ids=(pending_token_id(row),),
        num_drafts=1,
        num_runner_drafts=sequence.num_runner_drafts - 1,
    )
