"""Files of small models, as their sources have them."""

import json
import random
import struct


def safetensors(num_bytes: int, seed: int = 0) -> bytes:
    """A safetensors file with one tensor of so many random bytes."""
    return safetensors_header(num_bytes) + random.Random(seed).randbytes(num_bytes)


def safetensors_header(num_bytes: int) -> bytes:
    """The beginning of a safetensors file with one tensor of so many bytes."""
    header = json.dumps(
        {"weight": {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header


def model_files(num_bytes: int = 200_000, seed: int = 0) -> dict[str, bytes]:
    """Files of a repository with a model, and with others that no runtime reads."""
    return {
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b'{"version": "1.0"}',
        "model.safetensors": safetensors(num_bytes, seed),
        "README.md": b"# A model\n",
        "modeling_custom.py": b"raise SystemExit('code of the model ran')\n",
        "pytorch_model.bin": b"\x80\x04pickle",
    }


def fetched_names(files: dict[str, bytes]) -> set[str]:
    """Names of the files, of `model_files`, that a fetch takes."""
    return {name for name in files if name.endswith((".json", ".safetensors"))}


def sharded_files(num_shards: int = 3, num_bytes: int = 50_000, seed: int = 0) -> dict[str, bytes]:
    """Files of a model in several safetensors files with an index."""
    names = [f"model-{n:05}-of-{num_shards:05}.safetensors" for n in range(1, num_shards + 1)]
    index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    shards = {name: safetensors(num_bytes, seed + n) for n, name in enumerate(names)}
    return {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        **shards,
    }
