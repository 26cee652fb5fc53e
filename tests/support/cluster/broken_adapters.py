"""Adapters that an engine has to refuse, each with the code of its reason."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from penstock_engine.make_model.adapters import make_adapter

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Rank of the adapters that are broken otherwise, and maximum rank of the engine.
RANK, MAX_RANK = 4, 8

Change = Callable[[Path], None]


def config(**settings: Any) -> Change:
    """Changes settings of adapter_config.json; None removes one."""

    def change(folder: Path) -> None:
        path = folder / CONFIG
        changed = json.loads(path.read_text()) | settings
        path.write_text(json.dumps({k: v for k, v in changed.items() if v is not None}))

    return change


def tensors(change_all: Callable[[dict[str, torch.Tensor]], None]) -> Change:
    """Changes the tensors of adapter_model.safetensors."""

    def change(folder: Path) -> None:
        found = load_file(folder / WEIGHTS)
        change_all(found)
        save_file(found, folder / WEIGHTS)

    return change


def renamed(old: str, new: str) -> Change:
    def rename(found: dict[str, torch.Tensor]) -> None:
        for name in [each for each in found if old in each]:
            found[name.replace(old, new)] = found.pop(name)

    return tensors(rename)


def removed(part: str) -> Change:
    def remove(found: dict[str, torch.Tensor]) -> None:
        for name in [each for each in found if part in each]:
            del found[name]

    return tensors(remove)


def _one(make: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Changes the first tensor."""

    def change(found: dict[str, torch.Tensor]) -> None:
        name = min(found)
        found[name] = make(found[name])

    return tensors(change)


def _with_value(value: float) -> Change:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor[0, 0] = value
        return tensor

    return _one(change)


def _embeddings(found: dict[str, torch.Tensor]) -> None:
    found["base_model.model.model.embed_tokens.weight"] = torch.zeros(8, 4)


def written(name: str, content: bytes) -> Change:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def link_out(name: str) -> Change:
    """Replaces a file by a link to a copy outside of the root, which is the folder above."""

    def change(folder: Path) -> None:
        outside = folder.parent.parent / f"outside-{folder.name}"
        shutil.move(folder / name, outside)
        (folder / name).symlink_to(outside)

    return change


def folder_link_out(folder: Path) -> None:
    outside = folder.parent.parent / f"outside-{folder.name}"
    shutil.move(folder, outside)
    folder.symlink_to(outside)


def _pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


def _pipe(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def _device(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("/dev/zero")


def _truncated(folder: Path) -> None:
    path = folder / WEIGHTS
    os.truncate(path, path.stat().st_size - 100)


def _huge(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, 1 << 40)  # a sparse file


def _wide(folder: Path) -> None:
    """The adapter of a model with twice the width."""
    for name, tensor in (found := load_file(folder / WEIGHTS)).items():
        found[name] = torch.cat([tensor, tensor], dim=1 if "lora_A" in name else 0)
    save_file(found, folder / WEIGHTS)


def _added_token(folder: Path) -> None:
    added = [{"id": 60_000, "content": "<|sql|>", "special": True}]
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added}))


BROKEN: dict[str, tuple[str, Change]] = {
    "absent": ("adapter_not_found", shutil.rmtree),
    "without-config": ("config_missing", lambda folder: (folder / CONFIG).unlink()),
    "config-is-no-json": ("config_invalid", written(CONFIG, b"{")),
    "config-is-nested": ("config_invalid", written(CONFIG, b"[" * 100_000)),
    "config-is-a-list": ("config_invalid", written(CONFIG, b"[]")),
    "huge-config": ("config_too_large", written(CONFIG, b" " * (2 << 20))),
    "other-method": ("peft_type_unsupported", config(peft_type="IA3")),
    "dora": ("setting_unsupported", config(use_dora=True)),
    "pissa": ("base_weights_changed", config(init_lora_weights="pissa")),
    "without-rank": ("rank_missing", config(r=None)),
    "rank-is-text": ("config_invalid", config(r="4")),
    "rank-too-large": ("rank_too_large", config(r=MAX_RANK + 1)),
    "alpha-is-negative": ("config_invalid", config(lora_alpha=-1)),
    "other-modules": ("target_unsupported", config(target_modules=["query_key_value"])),
    "other-layers": ("target_unsupported", renamed("layers.0.", "layers.90.")),
    "embedding-tensors": ("embeddings_changed", tensors(_embeddings)),
    "one-factor": ("factor_missing", removed("layers.0.mlp.up_proj.lora_B")),
    "missing-tensors": ("target_missing", removed("layers.0.mlp.up_proj")),
    "no-tensors": ("no_tensors", tensors(lambda found: found.clear())),
    "foreign-tensor": ("tensor_unknown", renamed("lora_A", "lora_magnitude_vector")),
    "other-rank": ("shape_mismatch", config(r=RANK - 1)),
    "other-width": ("shape_mismatch", _wide),
    "pickle": ("pickle_file", _pickle),
    "without-weights": ("weights_missing", lambda folder: (folder / WEIGHTS).unlink()),
    "no-safetensors": ("weights_damaged", written(WEIGHTS, b"\x80\x02" + b"pickle" * 99)),
    "bad-header": ("weights_damaged", written(WEIGHTS, (2).to_bytes(8, "little") + b"{]")),
    "empty": ("weights_truncated", written(WEIGHTS, b"")),
    "truncated": ("weights_truncated", _truncated),
    "huge": ("weights_too_large", _huge),
    "linked-weights": ("outside_lora_dir", link_out(WEIGHTS)),
    "linked-config": ("outside_lora_dir", link_out(CONFIG)),
    "linked-folder": ("outside_lora_dir", folder_link_out),
    "device": ("outside_lora_dir", _device),
    "pipe": ("not_a_file", _pipe),
    "whole-numbers": ("dtype_unsupported", _one(lambda tensor: tensor.to(torch.int8))),
    "not-a-number": ("values_not_finite", _with_value(float("nan"))),
    "infinite": ("values_not_finite", _with_value(float("inf"))),
    "added-token": ("tokenizer_changed", _added_token),
}


def make_broken(name: str, model_dir: Path, root: Path) -> Path:
    """Make the adapter BROKEN[name] in a folder of that name in root. Returns the folder."""
    folder = make_adapter(model_dir, root / name, seed=1, rank=RANK)
    BROKEN[name][1](folder)
    return folder
