"""Whole models on the path of CUDA, from the runner down, against the torch path: same tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.kernels.operations import BY_DEVICE, TRITON
from penstock_engine.lora.checkpoint import Adapter, Factors
from penstock_engine.runner import Runner
from penstock_engine.runner_config import RunnerConfig

SIZES = {
    "num_blocks": 40,
    "block_size": 8,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 16,
    "max_model_len": 100,
}
GREEDY = SamplingParams(max_tokens=6, temperature=0.0)


@contextmanager
def kernels_on(device: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BY_DEVICE, device, TRITON)
        yield


def random_adapter(rank: int, targets: dict[str, tuple[int, int]]) -> Adapter:
    """Of every other product."""
    generator = torch.Generator().manual_seed(rank)

    def normal(*size: int) -> torch.Tensor:
        return 0.4 * torch.randn(size, generator=generator)

    return Adapter(
        rank,
        {
            name: Factors(normal(rank, inputs), normal(outputs, rank))
            for name, (outputs, inputs) in list(targets.items())[rank % 2 :: 2]
        },
    )


def generate(
    model_dir: Path, device: str, adapters: tuple[str, ...] = (), **options: Any
) -> dict[str, list[int]]:
    """Chunks and single tokens share steps. adapters: of the sequences, named by their ranks."""
    config = RunnerConfig(model_dir=model_dir, device=device, dtype="float32", **SIZES, **options)
    runner = Runner.load(config)
    for name in {*adapters} - {""}:
        runner.adapters.add(name, random_adapter(int(name), runner.adapters.targets))
    scheduler = Scheduler(SchedulerConfig(**SIZES, max_adapters=config.max_adapters))
    for length, adapter in zip_longest((1, 7, 8, 30, 60), adapters, fillvalue=""):
        prompt = [(length * i) % 61 for i in range(length)]
        scheduler.add(Sequence(str(length), prompt, GREEDY, frozenset(), 0.0, adapter=adapter))
    outputs: dict[str, list[int]] = {}
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs.setdefault(event.request_id, []).extend(event.token_ids)
    return outputs


def check(model_dir: Path, device: str, **options: Any) -> None:
    torch.set_num_threads(1)
    expected = generate(model_dir, "cpu", **options)
    assert len({tuple(tokens) for tokens in expected.values()}) > 1
    with kernels_on(device):
        assert generate(model_dir, device, **options) == expected


@pytest.mark.parametrize(
    "options",
    [{}, {"quantization": "int8"}, {"quantization": "int4"}, {"kv_dtype": "int8"}],
    ids=["plain", "int8", "int4", "int8 cache"],
)
def test_a_model_on_kernels_answers_as_on_torch(
    qwen3_dir: Path, device: str, options: dict[str, str]
) -> None:
    check(qwen3_dir, device, **options)


def test_adapters(qwen3_dir: Path, device: str) -> None:
    """Three of different ranks, of which two fit at once, beside sequences without one."""
    adapters = ("3", "", "16", "3", "5")
    check(qwen3_dir, device, adapters=adapters, max_adapters=2)
    plain = generate(qwen3_dir, "cpu")
    adapted = generate(qwen3_dir, "cpu", adapters=adapters, max_adapters=2)
    assert [plain[n] == adapted[n] for n in plain] == [not name for name in adapters]


@pytest.mark.parametrize("family", ["gemma2", "phi", "mixtral"])
def test_families(family: str, greedy_equality: ModuleType, device: str, tmp_path: Path) -> None:
    """Windows of 5 tokens in some layers, scores below 2 and norms before and after; halves side
    by side, rotated in part; experts."""
    torch.manual_seed(0)
    made = greedy_equality.FAMILIES[family]
    if family == "gemma2":
        made = replace(made, config=made.config | {"sliding_window": 5})
    made.make(tmp_path)
    check(tmp_path, device)
