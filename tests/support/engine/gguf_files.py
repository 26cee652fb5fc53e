"""Writes a Llama, Qwen or Gemma model folder as a GGUF file, with the gguf library."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, dequantize, quantize
from safetensors.torch import load_file

from penstock_engine.checkpoints.gguf.names import LAYER, SANDWICH, TOP

ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3",
}  # fmt: skip
FLOATS = {"F32": np.float32, "F16": np.float16}


def write_gguf(directory: Path, path: Path, kind: str) -> dict[str, torch.Tensor]:
    """Write a GGUF file. directory: holds config.json and one file of weights. kind: F16, Q4_0, ….

    Returns the weights as stored, dequantized to float32, by their names in the folder.
    """
    config = json.loads((directory / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = GGUFWriter(path, architecture)
    _add_config(writer, architecture, config)
    if (directory / "tokenizer.json").is_file():
        _add_tokenizer(writer, directory)
    stored: dict[str, torch.Tensor] = {}
    for name, weight in load_file(directory / "model.safetensors").items():
        stored[name] = _add_tensor(writer, architecture, config, name, weight.float(), kind)
    _add_rope(writer, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _add_config(writer: GGUFWriter, architecture: str, config: dict[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    ropes = config["rope_parameters"]
    writer.add_rope_freq_base(ropes.get("full_attention", ropes)["rope_theta"])
    if architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(config["sliding_window"])
        slides = [kind == "sliding_attention" for kind in config["layer_types"]]
        writer.add_array(f"{architecture}.attention.sliding_window_pattern", slides)
        writer.add_float32(
            f"{architecture}.attention.scale", config["query_pre_attn_scalar"] ** -0.5
        )
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _add_rope(writer: GGUFWriter, config: dict[str, Any]) -> None:
    """Writes rope scaling as llama.cpp's converter does: linear as metadata, llama3 as divisors."""
    ropes = config["rope_parameters"]
    rope = ropes.get("full_attention", ropes)
    if rope["rope_type"] == "linear":
        writer.add_string(f"{writer.arch}.rope.scaling.type", "linear")
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] != "llama3":
        return
    head_dim, original = config["head_dim"], rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for index in range(0, head_dim, 2):
        turns = original / (2 * np.pi * rope["rope_theta"] ** (index / head_dim))
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))


def _add_tensor(
    writer: GGUFWriter, architecture: str, config: dict[str, Any], name: str,
    weight: torch.Tensor, kind: str,
) -> torch.Tensor:  # fmt: skip
    module, _, leaf = name.rpartition(".")
    own, is_norm = _own_name(architecture, module), "norm" in module
    numbers = weight.numpy()
    if is_norm and architecture.startswith("gemma"):
        numbers = numbers + np.float32(1)
    if architecture == "llama" and own.endswith(("attn_q", "attn_k")):
        heads = config["num_attention_heads" if own.endswith("q") else "num_key_value_heads"]
        numbers = _pairs_of_neighbors(numbers, heads)
    if numbers.ndim == 1 or kind in FLOATS:
        numbers = numbers.astype(FLOATS[kind] if numbers.ndim > 1 else np.float32)
        writer.add_tensor(f"{own}.{leaf}", numbers)
        is_plus_one = is_norm and architecture.startswith("gemma")
        return weight if is_plus_one else weight.to(torch.from_numpy(numbers).dtype).float()
    quantized = GGMLQuantizationType[kind]
    writer.add_tensor(f"{own}.{leaf}", quantize(numbers, quantized), raw_dtype=quantized)
    return torch.from_numpy(dequantize(quantize(weight.numpy(), quantized), quantized))


def _own_name(architecture: str, module: str) -> str:
    if not module.startswith("model.layers."):
        return {theirs: own for own, theirs in TOP.items()}[module]
    _, _, index, part = module.split(".", 3)
    layer = SANDWICH if architecture in ("gemma2", "gemma3") else LAYER
    return f"blk.{index}." + next(own for own, theirs in layer.items() if theirs == part)


def _pairs_of_neighbors(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Row order of Llama's query and key weights after llama.cpp's converter."""
    halves = rows.reshape(num_heads, 2, len(rows) // num_heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def _add_tokenizer(writer: GGUFWriter, directory: Path) -> None:
    """Add a byte-level tokenizer."""
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    vocab = tokenizer["model"]["vocab"] | {t["content"]: i for i, t in added.items()}
    tokens = sorted(vocab, key=vocab.__getitem__)
    kinds = [
        TokenType.NORMAL
        if index not in added
        else TokenType.CONTROL
        if added[index]["special"]
        else TokenType.USER_DEFINED
        for index in range(len(tokens))
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    generation = json.loads((directory / "generation_config.json").read_text())
    ends = generation["eos_token_id"]
    ends = ends if isinstance(ends, list) else [ends]
    for key, end in zip(("eos", "eot"), ends, strict=False):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", end)
    if (directory / "chat_template.jinja").is_file():
        writer.add_chat_template((directory / "chat_template.jinja").read_text())
