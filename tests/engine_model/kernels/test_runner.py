"""Whole models on the path of CUDA, from the runner down, against the torch path: same tokens."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from triton.runtime.jit import KernelInterface

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.operations import BY_DEVICE
from penstock_engine.lora.checkpoint import Adapter, Factors

SIZES = {
    "num_blocks": 40,
    "block_size": 8,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 16,
    "max_model_len": 200,  # more than the keys of the shortest split
}
Computing = Callable[[str], AbstractContextManager[None]]
ATTENTION = {"kv_write", "split_plan", "attend", "merge_splits"}
ALWAYS = ATTENTION | {"rope", "adjust_logits", "gumbel_argmax"}
NORM, GATE, GROUPED = {"add_norm"}, {"gate"}, {"group_rows", "grouped_linear"}
FEW = (1, 8, 17)  # lengths: a part of a block, a whole one, several in two steps
GREEDY = SamplingParams(max_tokens=3, temperature=0.0)


def random_adapter(rank: int, targets: dict[str, tuple[int, int]]) -> Adapter:
    """LoRA adapter with random weights for every second product."""
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
    model_dir: Path,
    device: str,
    adapters: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (1, 7, 8, 17, 27),
    **options: Any,
) -> dict[str, list[int]]:
    """Chunks and single tokens share steps. adapters: of the sequences, named by their ranks."""
    config = RunnerConfig(model_dir=model_dir, device=device, dtype="float32", **SIZES, **options)
    runner = Runner.load(config)
    for name in {*adapters} - {""}:
        runner.adapters.add(name, random_adapter(int(name), runner.adapters.targets))
    scheduler = Scheduler(SchedulerConfig(**SIZES, max_adapters=config.max_adapters))
    for length, adapter in zip_longest(lengths, adapters, fillvalue=""):
        prompt = [(length * i) % 61 for i in range(length)]
        scheduler.add(Sequence(str(length), prompt, GREEDY, frozenset(), 0.0, adapter=adapter))
    outputs: dict[str, list[int]] = {}
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs.setdefault(event.request_id, []).extend(event.token_ids)
    return outputs


@contextmanager
def launches() -> Iterator[set[str]]:
    """The names of the kernels that are launched inside."""
    names: set[str] = set()
    launch = KernelInterface.__getitem__

    def noted(kernel: Any, grid: Any) -> Any:
        names.add(kernel.__name__.strip("_").removesuffix("_kernel"))
        return launch(kernel, grid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelInterface, "__getitem__", noted)
        yield names


def check(
    computing: Computing, launched: set[str], model_dir: Path, device: str, **options: Any
) -> dict[str, list[int]]:
    """launched: what of kernels is beside those that every model needs."""
    with computing("torch"), launches() as names:
        expected = generate(model_dir, "cpu", **options)
    assert not names
    assert len({tuple(tokens) for tokens in expected.values()}) > 1
    with computing("triton"), launches() as names:
        assert generate(model_dir, device, **options) == expected
    assert names == ALWAYS | launched
    return expected


@pytest.mark.parametrize(
    ("options", "launched"),
    [
        ({}, set()),
        ({"quantization": "int8", "lengths": FEW}, {"int8_linear"}),
        ({"quantization": "int4", "lengths": FEW}, {"int4_linear"}),
        ({"kv_dtype": "int8", "lengths": FEW}, set()),
    ],
    ids=["plain", "int8", "int4", "int8 cache"],
)
def test_a_model_on_kernels_answers_as_on_torch(
    computing: Computing,
    qwen3_dir: Path,
    device: str,
    options: dict[str, Any],
    launched: set[str],
) -> None:
    check(computing, NORM | GATE | launched, qwen3_dir, device, **options)


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_steps_are_recorded_unless_each_is_to_be_launched(
    enforce_eager: bool,
    computing: Computing,
    qwen3_dir: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = []

    def record(compute: Any) -> Any:
        recorded.append(compute)
        return compute

    config = RunnerConfig(
        model_dir=qwen3_dir, device=device, dtype="float32", enforce_eager=enforce_eager, **SIZES
    )
    with computing("triton"):
        operations = replace(BY_DEVICE[device], recorder=lambda: record)
        monkeypatch.setitem(BY_DEVICE, device, operations)
        Runner.load(config)
    assert bool(recorded) != enforce_eager


def test_adapters(computing: Computing, qwen3_dir: Path, device: str) -> None:
    """Three of different ranks, of which two fit at once, beside sequences without one."""
    adapters = ("3", "", "16", "3", "5")
    launched = NORM | GATE | GROUPED
    adapted = check(computing, launched, qwen3_dir, device, adapters=adapters, max_adapters=2)
    with computing("torch"):
        plain = generate(qwen3_dir, "cpu")
    assert [plain[n] == adapted[n] for n in plain] == [not name for name in adapters]


@pytest.mark.parametrize(
    ("family", "launched"),
    [("gemma2", NORM | GATE), ("phi", set()), ("mixtral", NORM | GATE | GROUPED)],
)
def test_families(
    computing: Computing,
    family: str,
    launched: set[str],
    greedy_equality: ModuleType,
    device: str,
    tmp_path: Path,
) -> None:
    """Windows of 5 tokens in some layers, scores below 2 and norms before and after; halves side
    by side, rotated in part; experts."""
    torch.manual_seed(0)
    made = greedy_equality.FAMILIES[family]
    if family == "gemma2":
        made = replace(made, config=made.config | {"sliding_window": 5})
    made.make(tmp_path)
    check(computing, launched, tmp_path, device, lengths=FEW)
