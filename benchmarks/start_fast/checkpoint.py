"""Writes a checkpoint of a Llama with random weights, in shards as the hub has them."""

import json
from pathlib import Path

import torch
from benchmarks.gpu.serving.model_folder import parameter_shapes
from safetensors.torch import save_file

# The layers have 2.4 x the hidden size between them, as those of small Llamas.
HIDDEN, INTERMEDIATE, VOCAB = 2048, 5632, 32_000
LAYER_BYTES, OTHER_BYTES = 90 << 20, 250 << 20  # about: of one layer, and of embeddings and head
NUM_SHARDS = 4
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip


def write_checkpoint(folder: Path, num_bytes: int) -> int:
    """Write a checkpoint of about so many bytes into a folder. Returns the bytes of its weights."""
    if num_bytes > OTHER_BYTES + LAYER_BYTES:
        layers = (num_bytes - OTHER_BYTES) // LAYER_BYTES
        sizes = (HIDDEN, INTERMEDIATE, VOCAB, layers)
    else:
        sizes = (128, 256, 512, 2)  # a few layers for a test
    names = ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers")
    config = CONFIG | dict(zip(names, sizes, strict=True))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(0)
    shapes = parameter_shapes(config)
    total = sum(2 * shape.numel() for shape in shapes.values())
    shards: list[dict[str, torch.Tensor]] = [{} for _ in range(NUM_SHARDS)]
    written = 0
    for name, shape in shapes.items():
        tensor = torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02, generator=generator)
        shards[written * NUM_SHARDS // total][name] = tensor
        written += tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{NUM_SHARDS:05}.safetensors"
        save_file(shard, folder / file)
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total
