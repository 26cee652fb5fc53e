"""Makes random LoRA adapters in PEFT's format for a model, for demos, tests and benchmarks."""

import json
import math
from collections.abc import Collection
from pathlib import Path

import torch
from safetensors.torch import save_file

from penstock_engine.checkpoints.weights import Checkpoint
from penstock_engine.lora.adapter_files import CONFIG_NAME, WEIGHTS_NAME
from penstock_engine.lora.adapters import targets_of
from penstock_engine.models.config import ModelConfig

# Frobenius norm of an adapter's product relative to the weight's. With 8, each of 20 adapters of the demo's
# model and of a barely trained one changed every greedy answer; with 4, some answers were equal.
STRENGTH = 8.0
DEFAULT_RANK = 8


def make_adapters(
    model_dir: Path, out: Path, count: int, *, rank: int = DEFAULT_RANK, seed: int = 0
) -> list[Path]:
    """Make `count` different adapters in the folders adapter-000, adapter-001, … of `out`.

    The first ones of a larger count are the same. Raises ModelError if the model cannot be read, ValueError
    if a number is not positive or a folder exists.
    """
    if count < 1 or rank < 1:
        raise ValueError("--count and --rank must be at least 1")
    return [
        make_adapter(model_dir, out / f"adapter-{index:03}", rank=rank, seed=seed * 100_003 + index)
        for index in range(count)
    ]


def make_adapter(
    model_dir: Path,
    folder: Path,
    *,
    seed: int,
    rank: int = DEFAULT_RANK,
    alpha: float | None = None,
    projections: Collection[str] = (),
    strength: float = STRENGTH,
) -> Path:
    """Make one adapter with random factors of normal distribution. Returns its folder.

    alpha: lora_alpha; None: twice the rank. projections: that it changes, such as q_proj; empty: all that
    the engine can adapt. strength: Frobenius norm of the scaled product relative to the norm of the weight.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists already: remove it, or name another folder")
    alpha = 2.0 * rank if alpha is None else alpha
    targets = {
        target: sizes
        for target, sizes in targets_of(ModelConfig.load(model_dir)).items()
        if not projections or target.rpartition(".")[2] in projections
    }
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    with Checkpoint(model_dir) as checkpoint:
        for target, (outputs, inputs) in targets.items():
            norm = checkpoint.get(f"{target}.weight").to(torch.float32).norm().item()
            a = torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs)
            b = torch.randn(outputs, rank, generator=generator)
            b *= strength * norm / (alpha / rank * (b @ a).norm().item())
            factors[f"base_model.model.{target}.lora_A.weight"] = a
            factors[f"base_model.model.{target}.lora_B.weight"] = b
    folder.mkdir(parents=True)
    config = _config(model_dir, rank, alpha, {target.rpartition(".")[2] for target in targets})
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2))
    weights = folder / WEIGHTS_NAME
    save_file(factors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # save_file makes it unreadable for other users, such as a pod's
    return folder


def _config(model_dir: Path, rank: int, alpha: float, projections: set[str]) -> dict[str, object]:
    """Contents of adapter_config.json: the fields of PEFT that say how the adapter is computed."""
    return {
        "base_model_name_or_path": str(model_dir),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": sorted(projections),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
