"""Merges LoRA adapters into the weights of a model: the reference for the answers of an adapted model."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from penstock_engine.checkpoints.weights import INDEX_NAME, checkpoint_files
from penstock_engine.lora.adapter_files import CONFIG_NAME, WEIGHTS_NAME

A_SUFFIX, B_SUFFIX = ".lora_A.weight", ".lora_B.weight"


def weight_changes(adapter_dir: Path) -> dict[str, torch.Tensor]:
    """Sum that an adapter adds to each weight, in float32, by the weight's name in the model's checkpoint."""
    config = json.loads((adapter_dir / CONFIG_NAME).read_text())
    rank, alpha = config["r"], config["lora_alpha"]
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    factors = load_file(adapter_dir / WEIGHTS_NAME)
    changes = {}
    for name, a in factors.items():
        if name.endswith(A_SUFFIX):
            path = name.removesuffix(A_SUFFIX)
            b = factors[f"{path}{B_SUFFIX}"]
            target = path.removeprefix("base_model.model.")
            changes[f"{target}.weight"] = scale * b.to(torch.float32) @ a.to(torch.float32)
    return changes


def merge_adapter(model_dir: Path, adapter_dir: Path, out: Path) -> Path:
    """Save the model with an adapter merged into its weights, in the dtype of the weights. Returns `out`."""
    changes = weight_changes(adapter_dir)
    weights: dict[str, torch.Tensor] = {}
    for path in checkpoint_files(model_dir):
        weights |= load_file(path)
    for name, change in changes.items():
        merged = weights[name].to(torch.float32) + change
        weights[name] = merged.to(weights[name].dtype)
    out.mkdir(parents=True)
    for path in model_dir.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and path.name != INDEX_NAME:
            shutil.copyfile(path, out / path.name)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    return out


def greedy_answers(
    model_dir: Path, adapters: Mapping[str, Path | None], prompts: Sequence[Sequence[int]], num_tokens: int
) -> dict[str, list[list[int]]]:  # fmt: skip
    """The greedy tokens for each prompt, by the name of the adapter. None: the model without one."""
    model = MergedModel(model_dir)
    return {
        name: [model.greedy(folder, prompt, num_tokens) for prompt in prompts]
        for name, folder in adapters.items()
    }


class MergedModel:
    """The model in transformers and float32, into which one adapter after another is merged."""

    def __init__(self, model_dir: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=torch.float32
        )

    @torch.inference_mode()
    def greedy(
        self, adapter_dir: Path | None, prompt_ids: Sequence[int], num_tokens: int
    ) -> list[int]:
        """The num_tokens most probable tokens after a prompt; an end token does not end them.

        adapter_dir: None: the model without an adapter.
        """
        with self._merged(adapter_dir):
            tokens: list[int] = []
            ids, cache = torch.tensor([list(prompt_ids)]), None
            while len(tokens) < num_tokens:
                step = self._model(ids, past_key_values=cache, use_cache=True)
                cache = step.past_key_values
                ids = step.logits[:, -1:].argmax(-1)
                tokens.append(int(ids))
            return tokens

    @contextmanager
    def _merged(self, adapter_dir: Path | None) -> Iterator[None]:
        changes = {} if adapter_dir is None else weight_changes(adapter_dir)
        weights = {name: self._model.get_parameter(name) for name in changes}
        originals = {name: weight.clone() for name, weight in weights.items()}
        try:
            for name, weight in weights.items():
                weight.add_(changes[name])
            yield
        finally:
            for name, weight in weights.items():
                weight.copy_(originals[name])
