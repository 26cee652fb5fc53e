"""Converts a GGUF file to a directory with a safetensors checkpoint, which loads faster."""

from __future__ import annotations

import json
from pathlib import Path

from penstock_engine.checkpoints.gguf.checkpoint import GgufCheckpoint
from penstock_engine.checkpoints.gguf.config import make_config
from penstock_engine.checkpoints.gguf.file import read_gguf
from penstock_engine.checkpoints.gguf.names import tensors_by_name
from penstock_engine.checkpoints.gguf.vocabulary import check_vocabulary
from penstock_engine.core.errors import ModelError


def convert(path: Path, folder: Path) -> None:
    """Write config.json, the tokenizer and model.safetensors (bfloat16) to a new or empty directory.

    The whole model is held in memory, at two bytes per weight. Raises ModelError if the file cannot be
    served, or if the directory is not empty.
    """
    import torch
    from safetensors.torch import save_file

    from penstock_engine.checkpoints.gguf.tokenizer import load_tokenizer

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError("BadTarget", f"{folder} is not an empty folder: give a new one")
    file = read_gguf(path)
    config = make_config(file) | {"dtype": "bfloat16"}
    check_vocabulary(file, config["vocab_size"])
    tokenizer = load_tokenizer(file)
    checkpoint = GgufCheckpoint(path)
    names = sorted(tensors_by_name(file))
    weights = {name: checkpoint.get(name).to(torch.bfloat16).contiguous() for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    weights_file = folder / "model.safetensors"
    save_file(weights, weights_file, {"format": "pt"})
    weights_file.chmod(0o644)  # save_file makes it unreadable for other users, such as a pod's
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
