"""A model spread over processes, which to its caller is a PagedModel.

rank 0 tells the workers what it is about to compute
every rank computes its part, and they sum, gather and hand over among themselves
rank 0 has hidden states and logits
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from penstock_engine.core.errors import RunnerLost
from penstock_engine.layers.group import ALONE
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import shards
from penstock_engine.paged_model import Chunk, PagedModel
from penstock_engine.parallel.messages import Forward, Logits, Part
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
        shard=shards(ModelConfig.load(model_dir), part.layout)[part.rank],
        group=ranks.group or ALONE,
        stages=ranks.stages,
    )


class ParallelModel:
    """Rank 0's part, and the workers that have the rest. One thread at a time.

    Ranks keep in step or not at all: what fails on one of them ends the workers, and from then on
    every call raises RunnerLost.
    """

    def __init__(self, model: PagedModel, part: Part, ranks: Ranks, workers: Workers) -> None:
        self.device = model.device
        self._model = model
        self._layout = part.layout
        self._group = ranks.group
        self._workers = workers
        self._is_lost = False

    @classmethod
    def load(cls, part: Part) -> "ParallelModel":
        """part: rank 0's; those of the others differ by the rank alone. Raises ModelError."""
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
            workers.close()
            leave()
            raise
        return cls(model, part, ranks, workers)

    def forward(self, sequences: Sequence[Chunk]) -> torch.Tensor:
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

    def watch(self, on_lost: Callable[[], None]) -> None:
        """on_lost: called at most once, on a thread of its own, when a worker ends by itself."""
        self._workers.watch(on_lost)

    def close(self) -> None:
        """Ends the workers."""
        self._workers.close()
        leave()

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
