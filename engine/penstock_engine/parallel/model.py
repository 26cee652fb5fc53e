"""A model spread over processes, which to its caller is a PagedModel.

rank 0 tells the workers what it is about to compute
every rank computes its part, and they sum, gather and hand over among themselves
rank 0 has hidden states and logits
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from penstock_engine.core.errors import RunnerLost
from penstock_engine.core.step import NO_MOVES, Moves, ScheduledSequence
from penstock_engine.layers.group import ALONE
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import shards
from penstock_engine.paged_model import PagedModel
from penstock_engine.parallel.messages import Forward, Logits, Move, Part
from penstock_engine.parallel.ranks import Ranks, join, leave, open_store
from penstock_engine.parallel.workers import Workers


def load_part(part: Part, ranks: Ranks) -> PagedModel:
    """Raises ModelError."""
    model_dir = Path(part.model_dir)
    return PagedModel.load(
        model_dir,
        device=part.device,
        dtype=part.dtype,
        num_blocks=part.num_blocks,
        block_size=part.block_size,
        max_num_tokens=part.max_num_tokens,
        max_model_len=part.max_model_len,
        quantization=part.quantization,
        num_host_blocks=part.num_host_blocks,
        shard=shards(ModelConfig.load(model_dir), part.layout)[part.rank],
        group=ranks.group or ALONE,
        stages=ranks.stages,
    )


class ParallelModel:
    """Rank 0's part, and the workers that have the rest. One thread at a time.

    Ranks keep in step or not at all: what fails on one of them ends the workers, and from then on
    every call raises RunnerLost. The workers end with close(), or with the last reference.
    """

    adapters = None

    def __init__(self, model: PagedModel, part: Part, ranks: Ranks, workers: Workers) -> None:
        self.device = model.device
        self._model = model
        self._layout = part.layout
        self._group = ranks.group
        self._workers = workers
        self._is_lost = False
        self.close = weakref.finalize(self, _end, workers)

    @classmethod
    def load(cls, part: Part, on_lost: Callable[[], None]) -> "ParallelModel":
        """part: rank 0's; those of the others differ by the rank alone. Raises ModelError.

        on_lost: called at most once, on a thread of its own, when a worker ends by itself.
        """
        workers = Workers()
        store = open_store()
        part = replace(part, store_port=store.port)
        try:
            for rank in range(1, part.layout.num_ranks):
                workers.start(replace(part, rank=rank))
            workers.wait_until("joining")
            ranks = join(store, part)
            model = load_part(part, ranks)
            workers.wait_until("ready")
        except BaseException:
            _end(workers)
            raise
        workers.watch(on_lost)
        return cls(model, part, ranks, workers)

    def move(self, moves: Moves) -> None:
        """As PagedModel.move. Raises RunnerLost."""
        if moves != NO_MOVES:
            with self._in_step():
                self._workers.send(Move(moves), self._layout.num_ranks)
                self._model.move(moves)

    def forward(self, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
        """As PagedModel.forward. Raises RunnerLost."""
        with self._in_step():
            self._workers.send(Forward(sequences), self._layout.num_ranks)
            return self._model.forward(sequences)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As PagedModel.logits. Raises RunnerLost."""
        with self._in_step():
            if self._group is not None:
                self._workers.send(Logits(len(hidden)), self._layout.tensor)
                hidden = self._group.broadcast(hidden)
            return self._model.logits(hidden)

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        if self._is_lost:
            raise RunnerLost("the ranks of the model have ended")
        try:
            yield
        except Exception as error:
            self._is_lost = True
            statuses = self._workers.close()
            raise RunnerLost(
                f"the ranks of the model are out of step; by rank, those that have ended by "
                f"themselves have the exit statuses {statuses}"
            ) from error


def _end(workers: Workers) -> None:
    workers.close()
    leave()
