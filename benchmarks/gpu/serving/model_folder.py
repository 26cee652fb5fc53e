"""Writes a model folder with random weights, as a server loads it."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from penstock_engine.machine.device import release_memory
from penstock_engine.make_model.corpus import read_corpus
from penstock_engine.make_model.tokenizer import train_tokenizer

DOCS = Path(__file__).resolve().parents[3] / "docs"
MERGED_VOCAB = 4096  # tokens of the tokenizer that texts become; the others are only generated
WEIGHT_STD = 0.02
SHARD_BYTES = 2 * 2**30  # of a weights file
SHARED_MEMORY = Path("/dev/shm")  # a file system in memory
PREFIX = "penstock-device-model-"  # and then the id of the process that made it
ROOM = 1.5  # x the model's bytes that have to be free


def make_folder(bytes_needed: int) -> Path:
    """A new folder with room for so many bytes, in memory if that has it. Raises OSError if none has.

    Folders that killed processes have left are removed first.
    """
    for parent in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        if not parent.is_dir():
            continue
        for folder in parent.glob(f"{PREFIX}*-*"):
            if not Path("/proc", folder.name.removeprefix(PREFIX).partition("-")[0]).exists():
                shutil.rmtree(folder, ignore_errors=True)
        if shutil.disk_usage(parent).free > ROOM * bytes_needed:
            return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    raise OSError(f"no folder has room for a model of {bytes_needed / 1e9:.1f} GB")


def write_model(folder: Path, config: Mapping[str, Any], device: str, seed: int) -> None:
    """Write a model folder: configuration, tokenizer and random bfloat16 weights.

    Answers have the length that is asked for: no token ends them.
    """
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
    (folder / "generation_config.json").write_text("{}")
    write_tokenizer(folder, config["vocab_size"])
    generator = torch.Generator(device).manual_seed(seed)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(_shards(parameter_shapes(config))):
        name = f"model-{number:05d}.safetensors"
        save_file(
            {key: _draw(key, shape, generator) for key, shape in shard.items()}, folder / name
        )
        weight_map |= dict.fromkeys(shard, name)
    release_memory(device)  # which the server needs
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def model_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of the model's weights in bfloat16."""
    return sum(2 * shape.numel() for shape in parameter_shapes(config).values())


def parameter_shapes(config: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Shape of each tensor of the checkpoint, by name."""
    fields = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        auto: Any = AutoModelForCausalLM
        model = auto.from_config(AutoConfig.for_model(config["model_type"], **fields))
    # Tied parameters are one parameter, of the first name.
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def _draw(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=torch.bfloat16, device=generator.device)
    if "norm" in name:
        return tensor.fill_(1).cpu()
    return tensor.normal_(std=WEIGHT_STD, generator=generator).cpu()


def _shards(shapes: Mapping[str, torch.Size]) -> Iterator[dict[str, torch.Size]]:
    """The tensors of each weights file."""
    shard: dict[str, torch.Size] = {}
    num_bytes = 0
    for name, shape in shapes.items():
        if shard and num_bytes + 2 * shape.numel() > SHARD_BYTES:
            yield shard
            shard, num_bytes = {}, 0
        shard[name] = shape
        num_bytes += 2 * shape.numel()
    yield shard


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a tokenizer whose tokens all have a text, so that each generated one is sent to the client.

    It is trained on this project's docs. Words that no text is split into fill its vocabulary.
    """
    tokenizer = train_tokenizer(
        read_corpus([DOCS]).passages, vocab_size=min(MERGED_VOCAB, vocab_size)
    )
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    first = max([len(vocabulary), *(1 + token["id"] for token in content["added_tokens"])])
    vocabulary |= {f"Ġword{number}": number for number in range(first, vocab_size)}
    path.write_text(json.dumps(content))
