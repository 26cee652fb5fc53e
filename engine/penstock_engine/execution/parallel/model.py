"""A model distributed over several processes, with the interface of PagedModel.

rank 0 sends the workers a message for each computation
every rank computes its part; the ranks exchange tensors by collective operations
rank 0 has the hidden states and logits
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from penstock_engine.core.errors import RunnerDiedError
from penstock_engine.core.step import NO_BLOCK_COPIES, BlockCopies, ScheduledSequence
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.parallel.messages import (
    AddAdapter,
    AddFactors,
    CopyBlocks,
    Forward,
    Logits,
    Message,
    RankConfig,
    RemoveAdapter,
)
from penstock_engine.execution.parallel.ranks import Ranks, join, leave, open_store
from penstock_engine.execution.parallel.workers import Workers
from penstock_engine.layers.parallel_group import SINGLE_RANK
from penstock_engine.lora.adapters import Adapters
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import make_shards


def load_part(part: RankConfig, ranks: Ranks) -> PagedModel:
    """Load the part of the model of one rank. Raises ModelError."""
    shard = make_shards(ModelConfig.load(part.config.model_dir), part.config.layout)[part.rank]
    return PagedModel.load(
        part.config, shard=shard, group=ranks.group or SINGLE_RANK, stages=ranks.stages
    )


class ParallelModel:
    """Rank 0's part of a model, and the workers with the other parts. Not thread-safe.

    A failure on any rank ends all workers, and from then on every call raises RunnerDiedError. The
    workers also end with close(), or when the last reference to this object is dropped.
    """

    def __init__(self, model: PagedModel, part: RankConfig, ranks: Ranks, workers: Workers) -> None:
        self.device = model.device
        self.dtype = model.dtype
        self._model = model
        self._layout = part.config.layout
        self._group = ranks.group
        self._workers = workers
        self._has_failed = False
        self.close = weakref.finalize(self, _end, workers)

    @classmethod
    def load(cls, part: RankConfig, on_rank_exit: Callable[[], None]) -> "ParallelModel":
        """Start the workers and load all parts of the model. Raises ModelError.

        part: rank 0's configuration; the others' differ only by the rank. on_rank_exit: called at most
        once, on another thread, when a worker exits unexpectedly.
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
        workers.watch(on_rank_exit)
        return cls(model, part, ranks, workers)

    def copy_blocks(self, copies: BlockCopies) -> None:
        """Copy blocks on all ranks; see PagedModel.copy_blocks. Raises RunnerDiedError."""
        if copies != NO_BLOCK_COPIES:
            with self.on_all_ranks([CopyBlocks(copies)]):
                self._model.copy_blocks(copies)

    def forward(
        self, sequences: Sequence[ScheduledSequence], sampled: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run the forward pass on all ranks; see PagedModel.forward. Raises RunnerDiedError.

        sampled: must be None, because only rank 0 has sampled tokens on its device.
        """
        assert sampled is None, "the other ranks have no sampled tokens"
        with self.on_all_ranks([Forward(sequences)]):
            return self._model.forward(sequences)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute logits on the ranks of the first stage; see PagedModel.logits.

        Raises RunnerDiedError.
        """
        with self.on_all_ranks([Logits(len(hidden))], self._layout.tensor):
            if self._group is not None:
                hidden = self._group.broadcast(hidden)
            return self._model.logits(hidden)

    def embeddings(self, hidden: torch.Tensor) -> torch.Tensor:
        """Embeddings of hidden states, computed on rank 0 alone; see PagedModel.embeddings."""
        return self._model.embeddings(hidden)

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def groupings(self) -> list[tuple[int, int]]:
        return self._model.groupings

    @property
    def adapters(self) -> "ParallelAdapters | None":
        return (
            None if self._model.adapters is None else ParallelAdapters(self, self._model.adapters)
        )

    @contextmanager
    def on_all_ranks(
        self, messages: Iterable[Message], num_ranks: int | None = None
    ) -> Iterator[None]:
        """Context manager: send messages to the other ranks, or to those below num_ranks.

        The body computes rank 0's part. Any failure ends all workers, and raises RunnerDiedError.
        """
        if self._has_failed:
            raise RunnerDiedError("the ranks of the model have ended")
        try:
            with self._workers.step():
                for message in messages:
                    self._workers.send(message, num_ranks or self._layout.num_ranks)
                yield
        except Exception as error:
            self._has_failed = True
            statuses = self._workers.close()
            raise RunnerDiedError(
                f"the ranks of the model are out of step; by rank, those that have ended by "
                f"themselves have the exit statuses {statuses}"
            ) from error


class ParallelAdapters:
    """Adds and removes adapters on all ranks. Each rank keeps its part of them."""

    def __init__(self, model: ParallelModel, own: Adapters) -> None:
        """own: the adapters on rank 0."""
        self._model = model
        self._own = own
        self.targets = own.targets

    @property
    def active(self) -> list[str]:
        return self._own.active

    def add(self, name: str, adapter: Adapter) -> None:
        """Add an adapter on all ranks; see Adapters.add. Raises RunnerDiedError."""
        factors = (AddFactors(target, pair) for target, pair in adapter.factors.items())
        with self._model.on_all_ranks([*factors, AddAdapter(name, adapter.rank)]):
            self._own.add(name, adapter)

    def remove(self, name: str) -> None:
        """Remove an adapter on all ranks; see Adapters.remove. Raises RunnerDiedError."""
        with self._model.on_all_ranks([RemoveAdapter(name)]):
            self._own.remove(name)


def _end(workers: Workers) -> None:
    workers.close()
    leave()
