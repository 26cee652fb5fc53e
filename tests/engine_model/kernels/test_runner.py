from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.runner import Runner

SIZES = {
    "num_blocks": 40,
    "block_size": 8,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 16,
    "max_model_len": 100,
}


def generate(model_dir: Path, device: str, *, use_kernels: bool) -> dict[str, list[int]]:
    runner = Runner.load(model_dir, device=device, dtype="float32", **SIZES)
    runner._model._use_kernels = use_kernels
    scheduler = Scheduler(SchedulerConfig(**SIZES))
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    for length in (1, 7, 8, 30, 60):
        prompt = [(length * i) % 61 for i in range(length)]
        scheduler.add(Sequence(str(length), prompt, sampling, frozenset(), 0.0))
    outputs: dict[str, list[int]] = {}
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs.setdefault(event.request_id, []).extend(event.token_ids)
    return outputs


def test_a_model_on_kernels_answers_as_on_torch(qwen3_dir: Path, device: str) -> None:
    """The path of CUDA, from the runner down: chunks and decodes in one batch."""
    torch.set_num_threads(1)
    expected = generate(qwen3_dir, "cpu", use_kernels=False)
    assert generate(qwen3_dir, device, use_kernels=True) == expected


def test_windows_and_softcaps_reach_the_kernels(
    greedy_equality: ModuleType, device: str, tmp_path: Path
) -> None:
    """Layers with a window of 5 tokens and without, and scores below 2."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    family = greedy_equality.FAMILIES["gemma2"]
    replace(family, config=family.config | {"sliding_window": 5}).make(tmp_path)
    expected = generate(tmp_path, "cpu", use_kernels=False)
    assert generate(tmp_path, device, use_kernels=True) == expected
