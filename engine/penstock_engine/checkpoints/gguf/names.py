"""Translates GGUF's tensor names to those of safetensors checkpoints."""

import re
from collections.abc import Iterator, Mapping

from penstock_engine.checkpoints.gguf.file import GgufFile, GgufTensor
from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.scheme import Header

TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Names in layers that normalize before and after both attention and MLP (Gemma 2 and 3).
SANDWICH = LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# Tensor of RoPE frequency factors, which become part of the configuration.
ROPE_FACTORS = "rope_freqs.weight"
QKV = ("attn_q", "attn_k", "attn_v")


def tensors_by_name(file: GgufFile) -> dict[str, tuple[str, GgufTensor]]:
    """Map checkpoint names to (GGUF name, tensor). Raises ModelError for unknown tensors."""
    layer = SANDWICH if file.architecture in ("gemma2", "gemma3") else LAYER
    return {name: (own, file.tensors[own]) for own, name in _pairs(file, layer)}


def headers(file: GgufFile) -> dict[str, Header]:
    """Headers as of a safetensors checkpoint. All tensors are F32, because they are dequantized."""
    return {
        name: Header("F32", tensor.shape) for name, (_, tensor) in tensors_by_name(file).items()
    }


def _pairs(file: GgufFile, layer: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for own in file.tensors:
        if own == ROPE_FACTORS:
            continue
        found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", own)
        index, part, leaf = found.groups() if found else (None, "", "")
        name = (TOP if index is None else layer).get(part)
        has_bias = file.architecture == "qwen2" and part in QKV
        if name is None or (leaf == "bias" and not has_bias):
            raise ModelError("BadConfig", f"tensor {own} is not supported in a GGUF file")
        yield own, f"{name}.{leaf}" if index is None else f"model.layers.{index}.{name}.{leaf}"
