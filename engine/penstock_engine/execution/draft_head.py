"""Drafts tokens with an EAGLE head that reads the target model's hidden states (models/draft_head.py).

The head can read a position once the target model has computed its hidden state and sampled the next
token. So after each step it reads the positions of that step, into the same blocks of its own KV cache.
Its prediction at the last position is the first draft; each further draft takes one forward pass over
one token of each sequence. Tokens and hidden states stay on the device until all drafts are made.

In blocks from the prefix cache, the last position may have been read with another next token. That can
cost an accepted draft, but never changes the output.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from penstock_engine.checkpoints.loading import load_weights
from penstock_engine.checkpoints.weights import Checkpoint
from penstock_engine.core.errors import ModelError
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.pending_tokens import pending_token_id
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.draft_head import DraftHeadDecoder

# Maps (request id, position) of a sampled token to its row in the tensor of sampled tokens.
Rows = Mapping[tuple[str, int], int]


class DraftHead:
    """Proposes drafts with an EAGLE head. Not thread-safe; used on the runner's thread."""

    def __init__(self, model: PagedModel, target: PagedModel) -> None:
        """model: the head with its KV cache. target: the model that verifies the drafts."""
        self.model = model
        self._target = target
        self._read: torch.Tensor | None = None
        self._row_of: dict[tuple[str, int], int] = {}  # by id and position, in what was read last

    @classmethod
    def load(cls, config: RunnerConfig, target: PagedModel) -> "DraftHead":
        """Load a head. config: with the head's directory as model_dir. Raises ModelError."""
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
        sampled: torch.Tensor | None, rows: Rows,
    ) -> None:  # fmt: skip
        """Read a step that is computed and sampled into the head's KV cache.

        sequences, hidden: input and output of the target's forward pass. sampled: the sampled tokens,
        int64 [rows]; rows: their places in it.
        """
        behind = [_shifted(sequence, rows) for sequence in sequences]
        received = self._target.normed(hidden)
        self._read = self.model.forward(behind, sampled, received)
        self._row_of = {}
        first = 0
        for sequence in sequences:
            for offset in range(sequence.num_tokens - sequence.num_rows, sequence.num_tokens):
                self._row_of[sequence.request_id, sequence.start + offset] = first + offset
            first += sequence.num_tokens

    def propose(
        self, sequences: Sequence[ScheduledSequence], sampled: torch.Tensor | None
    ) -> list[ScheduledSequence]:
        """Propose drafts for the sequences whose last step was the one read last.

        Returns all sequences, with up to num_runner_drafts drafts added.
        """
        requesting = [
            s
            for s in sequences
            if s.num_runner_drafts and (s.request_id, s.start - 1) in self._row_of
        ]
        if self._read is None or not requesting:
            return [sequence.with_drafts(()) for sequence in sequences]
        places = [self._row_of[s.request_id, s.start - 1] for s in requesting]
        states = self._read[self._index(places)]
        made: list[tuple[list[ScheduledSequence], torch.Tensor]] = []
        growing = requesting
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
    """The same positions with the tokens that follow them, as the head reads them."""
    num_rows = sequence.num_rows
    end_known = sequence.end - num_rows
    known = sequence.history[sequence.start + 1 : end_known + 1]
    first = rows[sequence.request_id, sequence.end] if num_rows else 0
    sampled = (pending_token_id(first + row) for row in range(num_rows))
    return sequence._replace(token_ids=(*known, *sampled), num_drafts=0, num_runner_drafts=0)


def _next(sequence: ScheduledSequence, row: int) -> ScheduledSequence:
    """The input for the next draft: the last draft, which is at `row` of the tensor of last drafts.

    Before the first draft, a sequence holds its last known token; afterwards, one draft.
    """
    is_first = sequence.num_drafts == 0
    return sequence._replace(
        start=sequence.start if is_first else sequence.start + 1,
        token_ids=(pending_token_id(row),),
        num_drafts=1,
        num_runner_drafts=sequence.num_runner_drafts - 1,
    )
