"""The parts of a model, each on a thread of its own, compute together what the whole computes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from tests.support.engine.families import FAMILIES

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import ONE_RANK, Layout, make_shards
from penstock_engine.quantization.rounding import Quantization

BLOCK_SIZE = 8
NUM_BLOCKS = 24
TIMEOUT_S = 60
EXPERTS = ("mixtral", "qwen3-moe")


class Table:
    """Mailbox in which the threads of a stage exchange tensors."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self.tensors: list[Any] = [None] * size


class ThreadGroup:
    def __init__(self, rank: int, table: Table) -> None:
        self.rank = rank
        self.size = len(table.tensors)
        self._table = table

    def _exchange(self, x: torch.Tensor) -> list[torch.Tensor]:
        self._table.barrier.wait()  # nobody still looks at what lies there
        self._table.tensors[self.rank] = x
        self._table.barrier.wait()
        return list(self._table.tensors)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._exchange(x)).sum(0)

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        parts = self._exchange(x)
        assert [part.shape[-1] for part in parts] == list(widths)
        return torch.cat(parts, -1)


class ThreadStages:
    def __init__(self, is_first: bool, inbox: SimpleQueue[Any], outbox: SimpleQueue[Any]) -> None:
        self.is_first = is_first
        self._inbox = inbox
        self._outbox = outbox

    def send(self, x: torch.Tensor) -> None:
        self._outbox.put(x)

    def receive(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self._inbox.get(timeout=TIMEOUT_S))


def load(
    model_dir: Path, layout: Layout, quantization: Quantization | None = None
) -> list[PagedModel]:
    tables = [Table(layout.tensor) for _ in range(layout.pipeline)]
    queues: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(layout.num_ranks)]
    models = []
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=128,
        quantization=quantization, max_adapters=1,
    )  # fmt: skip
    for rank, shard in enumerate(make_shards(ModelConfig.load(model_dir), layout)):
        stage, place = divmod(rank, layout.tensor)
        following = (rank + layout.tensor) % layout.num_ranks
        ring = ThreadStages(stage == 0, queues[rank], queues[following])
        models.append(
            PagedModel.load(
                config,
                shard=shard,
                group=ThreadGroup(place, tables[stage]),
                stages=ring if layout.pipeline > 1 else None,
            )
        )
    return models


def chunk(start: int, num_tokens: int, first_block: int, adapter: str = "") -> ScheduledSequence:
    tokens = tuple((7 * first_block + 13 * i) % 512 for i in range(start, start + num_tokens))
    blocks = tuple(range(first_block, first_block + 6))
    sampling = SamplingParams(max_tokens=1)
    return ScheduledSequence("", start, tokens, blocks, False, sampling, (), 0, adapter=adapter)


# Two prompts, then a token of each beside a chunk of a third. One of them has an adapter.
PASSES = (
    [chunk(0, 21, 1), chunk(0, 40, 7, "a")],
    [chunk(21, 1, 1), chunk(40, 1, 7, "a"), chunk(0, 30, 13)],
)


@torch.inference_mode()
def compute(models: Sequence[PagedModel], num_first_stage: int) -> list[torch.Tensor]:
    """Logits of all tokens of both passes, by the first rank."""

    @torch.inference_mode()
    def run(model: PagedModel, has_head: bool) -> list[torch.Tensor]:
        outputs = []
        for sequences in PASSES:
            hidden = model.forward(sequences)
            if has_head:
                outputs.append(model.logits(hidden))
        return outputs

    with ThreadPoolExecutor(len(models)) as threads:
        futures = [
            threads.submit(run, model, rank < num_first_stage) for rank, model in enumerate(models)
        ]
        outputs = [future.result(TIMEOUT_S) for future in futures]
    return outputs[0]


def layouts(family: str) -> list[Layout]:
    """Layouts of a family, with more ranks than KV heads and with parts of unequal size."""
    num_heads = FAMILIES[family].config.get("num_attention_heads", 4)
    tensor = [Layout(size) for size in (2, 4, 6) if num_heads % size == 0 and size != num_heads / 2]
    experts = [Layout(2, splits_experts=True)] if family in EXPERTS else []
    return [*tensor, Layout(1, 2), Layout(2, 3), *experts]


@pytest.mark.parametrize("quantization", [None, "int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_compute_what_the_whole_computes(
    family: str,
    quantization: Quantization | None,
    family_dir: Callable[[str], Path],
    make_adapter: Callable[[Mapping[str, tuple[int, int]]], Adapter],
) -> None:
    """Weights of few bits, too: they are rounded first and cut then."""

    def logits(layout: Layout) -> list[torch.Tensor]:
        models = load(family_dir(family), layout, quantization)
        for model in models:
            assert model.adapters is not None
            model.adapters.add("a", make_adapter(model.adapters.targets))
        return compute(models, layout.tensor)

    expected = logits(ONE_RANK)
    for layout in layouts(family):
        outputs = logits(layout)
        for output, wanted in zip(outputs, expected, strict=True):
            torch.testing.assert_close(output, wanted, atol=2e-4, rtol=2e-4, msg=str(layout))
