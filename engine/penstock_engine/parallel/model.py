"""A model spread over processes, which to its caller is a PagedModel.

rank 0 tells the workers what it is about to compute
every rank computes its part, and they sum, gather and hand over among themselves
rank 0 has hidden states and logits
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from penstock_engine.core.errors import RunnerDiedError
from penstock_engine.core.step import NO_BLOCK_COPIES, BlockCopies, ScheduledSequence
from penstock_engine.layers.parallel_group import SINGLE_RANK
from penstock_engine.lora.adapted import Adapters
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import make_shards
from penstock_engine.paged_model import PagedModel
from penstock_engine.parallel.messages import (
    AddAdapter,
    AddFactors,
    Forward,
    Logits,
    Message,
    Move,
    Part,
    RemoveAdapter,
)
from penstock_engine.parallel.ranks import Ranks, join, leave, open_store
from penstock_engine.parallel.workers import Workers


def load_part(part: Part, ranks: Ranks) -> PagedModel:
    """Raises ModelError."""
    shard = make_shards(ModelConfig.load(part.config.model_dir), part.config.layout)[part.rank]
    return PagedModel.load(
        part.config, shard=shard, group=ranks.group or SINGLE_RANK, stages=ranks.stages
    )


class ParallelModel:
    """Rank 0's part, and the workers that have the rest. One thread at a time.

    Ranks keep in step or not at all: what fails on one of them ends the workers, and from then on
    every call raises RunnerDiedError. The workers end with close(), or with the last reference.
    """

    def __init__(self, model: PagedModel, part: Part, ranks: Ranks, workers: Workers) -> None:
        self.device = model.device
        self._model = model
        self._layout = part.config.layout
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
            for rank in range(1, part.config.layout.num_ranks):
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

    def move(self, moves: BlockCopies) -> None:
        """As PagedModel.move. Raises RunnerDiedError."""
        if moves != NO_BLOCK_COPIES:
            with self.on_all_ranks([Move(moves)]):
                self._model.move(moves)

    def forward(
        self, sequences: Sequence[ScheduledSequence], drawn: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As PagedModel.forward, without awaited tokens. Raises RunnerDiedError."""
        assert drawn is None, "the other ranks have no drawn tokens"
        with self.on_all_ranks([Forward(sequences)]):
            return self._model.forward(sequences)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As PagedModel.logits. Raises RunnerDiedError."""
        with self.on_all_ranks([Logits(len(hidden))], self._layout.tensor):
            if self._group is not None:
                hidden = self._group.broadcast(hidden)
            return self._model.logits(hidden)

    def embeddings(self, hidden: torch.Tensor) -> torch.Tensor:
        """As PagedModel.embeddings: rank 0 has all that it takes."""
        return self._model.embeddings(hidden)

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def adapters(self) -> "SpreadAdapters | None":
        return None if self._model.adapters is None else SpreadAdapters(self, self._model.adapters)

    @contextmanager
    def on_all_ranks(
        self, messages: Iterable[Message], num_ranks: int | None = None
    ) -> Iterator[None]:
        """Send messages to the other ranks, or those below num_ranks; the block is rank 0's part.

        Every failure ends the model for good: raises RunnerDiedError.
        """
        if self._is_lost:
            raise RunnerDiedError("the ranks of the model have ended")
        try:
            with self._workers.step():
                for message in messages:
                    self._workers.send(message, num_ranks or self._layout.num_ranks)
                yield
        except Exception as error:
            self._is_lost = True
            statuses = self._workers.close()
            raise RunnerDiedError(
                f"the ranks of the model are out of step; by rank, those that have ended by "
                f"themselves have the exit statuses {statuses}"
            ) from error


class SpreadAdapters:
    """The adapters of all ranks: each takes of them what belongs to its part."""

    def __init__(self, model: ParallelModel, own: Adapters) -> None:
        """own: rank 0's."""
        self._model = model
        self._own = own
        self.targets = own.targets

    @property
    def active(self) -> list[str]:
        return self._own.active

    def add(self, name: str, adapter: Adapter) -> None:
        """As Adapters.add. Raises RunnerDiedError."""
        factors = (AddFactors(target, pair) for target, pair in adapter.factors.items())
        with self._model.on_all_ranks([*factors, AddAdapter(name, adapter.rank)]):
            self._own.add(name, adapter)

    def remove(self, name: str) -> None:
        """As Adapters.remove. Raises RunnerDiedError."""
        with self._model.on_all_ranks([RemoveAdapter(name)]):
            self._own.remove(name)


def _end(workers: Workers) -> None:
    workers.close()
    leave()
