"""Metadata of GGUF files, read as llama.cpp reads them, or refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from gguf.constants import Keys

from penstock_engine.checkpoints.gguf.config import HEAD_LENGTHS, KEYS, REFUSED
from penstock_engine.core.errors import ModelError
from penstock_engine.models.config import ModelConfig

SIZES = {
    "block_count": 1, "context_length": 256, "embedding_length": 128, "feed_forward_length": 64,
    "attention.head_count": 4,
}  # fmt: skip
TOKENS = ["a", "<s>", "</s>", "<|im_end|>", "<|eot_id|>", "b"]


def config_of(folder: Path, metadata: dict[str, Any], *, factors: bool = False) -> ModelConfig:
    """The configuration of a file with these metadata; keys without a dot before are of llama.

    factors: whether the file has divisors of each frequency.
    """
    writer = GGUFWriter(folder / "made.gguf", "llama")
    for key, value in (SIZES | metadata).items():
        name = key if key.startswith("tokenizer.") else f"llama.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            add = {
                str: writer.add_string, int: writer.add_uint32, float: writer.add_float32,
                bool: writer.add_bool,
            }[type(value)]  # fmt: skip
            add(name, value)
    writer.add_tensor("token_embd.weight", np.zeros((8, 128), np.float32))
    if factors:
        writer.add_tensor("rope_freqs.weight", np.full(16, 2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelConfig.load(folder / "made.gguf")


@pytest.mark.parametrize(
    ("metadata", "rope_type", "factor"),
    [
        ({}, "default", None),
        ({"scaling.type": "none", "scaling.factor": 4.0}, "default", None),
        ({"scaling.type": "linear"}, "default", None),
        ({"scaling.factor": 0.0}, "default", None),
        ({"scaling.type": "linear", "scaling.factor": 4.0}, "linear", 4.0),
        ({"scaling.factor": 4.0}, "linear", 4.0),
        ({"scale_linear": 4.0}, "linear", 4.0),
        ({"scale_linear": 4.0, "scaling.factor": 2.0}, "linear", 2.0),
        ({"scaling.type": "yarn", "scaling.factor": 4.0}, "yarn", 4.0),
    ],
    ids=str,
)
def test_rope_scaling_has_the_defaults_of_llama_cpp(
    tmp_path: Path, metadata: dict[str, Any], rope_type: str, factor: float | None
) -> None:
    rope = config_of(tmp_path, {f"rope.{key}": v for key, v in metadata.items()})
    read = rope.ropes[0]
    assert (read.rope_type, read.parameters.get("factor")) == (rope_type, factor)
    assert rope.max_model_len == 256 * (factor or 1)


def test_yarn_keeps_its_own_attention_factor(tmp_path: Path) -> None:
    given = {
        "type": "yarn", "factor": 4.0, "original_context_length": 64, "yarn_attn_factor": 1.5,
        "yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0,
    }  # fmt: skip
    config = config_of(tmp_path, {f"rope.scaling.{key}": v for key, v in given.items()})
    assert config.ropes[0].parameters == {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0,
    }  # fmt: skip


def test_divisors_of_frequencies_are_not_scaled_again(tmp_path: Path) -> None:
    rope = config_of(tmp_path, {}, factors=True).ropes[0]
    assert rope.parameters["long_factor"] == [2.0] * 16
    with pytest.raises(ModelError, match=r"factor 4\.0 is not supported beside rope_freqs\.weight"):
        config_of(tmp_path, {"rope.scaling.factor": 4.0}, factors=True)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"model": "gpt2", "eos_token_id": 5}, {3, 4, 5}),
        ({"model": "gpt2", "eos_token_id": 5, "eot_token_id": 0, "eom_token_id": 1}, {0, 1, 3, 4, 5}),
        ({"model": "llama"}, {2, 3, 4}),
        ({"model": "llama", "eos_token_id": 1}, {1, 3, 4}),
    ],
    ids=str,
)  # fmt: skip
def test_answers_end_where_llama_cpp_ends_them(
    tmp_path: Path, metadata: dict[str, Any], expected: set[int]
) -> None:
    """At the tokens that keys name, and at those whose text is known to end a turn."""
    named = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    config = config_of(tmp_path, {"tokenizer.ggml.tokens": TOKENS, **named})
    assert config.eos_token_ids == expected


READ_ELSEWHERE = {
    "attention.scale", "attention.sliding_window", "attention.sliding_window_pattern",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
}  # fmt: skip
# Keys that llama.cpp reads only for architectures that are refused, or that change no answer.
WITHOUT_EFFECT = {
    "vocab_size": "that of the embedding counts",
    "rope.scaling.finetuned": "information",
    "tensor_data_layout": "information; llama.cpp does not read it",
    "attention.layer_norm_epsilon": "these architectures normalize by the root mean square",
    "embedding_length_out": "of embedding models",
    "features_length": "of audio models",
    "pooling_type": "of embedding models",
    "decoder_start_token_id": "of encoder-decoders",
    "decoder_block_count": "of encoder-decoders",
    "attention.relative_buckets_count": "of encoder-decoders",
    "attention.group_norm_epsilon": "of audio models",
    "attention.group_norm_groups": "of audio models",
    "attention.temperature_length": "no effect without temperature_scale",
    "swin_norm": "of chameleon",
    "nextn_predict_layers": "of models with prediction layers",
    "n_deepstack_layers": "of vision models",
    "router_logit_softcapping": "of mixtures of experts",
    "full_attention_interval": "of hybrid models",
    "activation_sparsity_scale": "of gemma3n",
    "embedding_length_per_layer_input": "of gemma3n",
    "attention.shared_kv_layers": "of gemma3n",
    "interleave_moe_layer_step": "of mixtures of experts",
    "moe_every_n_layers": "of mixtures of experts",
    "moe_latent_size": "of mixtures of experts",
    "leading_dense_block_count": "of mixtures of experts",
}
OF_OTHERS = (
    "expert", "swiglu_clamp", "altup.", "{dense}", "rescale_every", "time_", "token_shift",
    "attention.indexer.", "attention.q_lora", "attention.kv_lora", "attention.decay_lora",
    "attention.iclr_lora", "attention.value_residual", "attention.gate_lora", "attention.key_length_mla",
    "attention.value_length_mla",
)  # fmt: skip


def keys_of(holder: type) -> Iterator[str]:
    for value in vars(holder).values():
        if isinstance(value, str) and value.startswith("{arch}."):
            yield value.removeprefix("{arch}.")


def test_every_key_of_the_library_is_read_refused_or_without_effect() -> None:
    read = {*KEYS.values(), *HEAD_LENGTHS, *READ_ELSEWHERE, *REFUSED, *WITHOUT_EFFECT}
    known = {key for holder in (Keys.LLM, Keys.Attention, Keys.Rope) for key in keys_of(holder)}
    assert {key for key in known - read if not key.startswith(OF_OTHERS)} == set()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.causal", False),
        ("rope.scaling.attn_factor", 1.5),
        ("rope.scaling.yarn_log_multiplier", 0.1),
        ("residual_scale", 0.5),
        ("attention.key_length_swa", 16),
        ("rope.dimension_sections", [8, 4, 4, 0]),
    ],
)
def test_a_key_that_changes_answers_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"{key} .* is not supported"):
        config_of(tmp_path, {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("attention.causal", True), ("expert_count", 0), ("logit_scale", 1.0)],
)
def test_a_key_with_a_value_that_changes_nothing_is_accepted(
    tmp_path: Path, key: str, value: Any
) -> None:
    assert config_of(tmp_path, {key: value}).num_layers == 1


READ_OF_TOKENIZER = {
    "ggml.model", "ggml.pre", "ggml.tokens", "ggml.token_type", "ggml.scores", "ggml.merges",
    "ggml.bos_token_id", "ggml.eos_token_id", "ggml.eot_token_id", "ggml.eom_token_id",
    "ggml.unknown_token_id", "ggml.padding_token_id", "ggml.add_bos_token", "ggml.add_eos_token",
    "ggml.add_space_prefix", "chat_template",
}  # fmt: skip
# Keys of tokenizers that change no answer of the kinds gpt2 and llama.
UNUSED_OF_TOKENIZER = {
    **dict.fromkeys(("ggml.token_type_count", "ggml.mask_token_id"), "of encoders"),
    **dict.fromkeys(("ggml.seperator_token_id", "ggml.add_sep_token"), "of encoders"),
    **dict.fromkeys(("ggml.remove_extra_whitespaces", "ggml.precompiled_charsmap"), "of the kind t5"),
    **dict.fromkeys(("huggingface.json", "rwkv.world"), "other kinds of tokenizers"),
    **dict.fromkeys(("chat_template.{name}", "chat_templates"), "the unnamed template is used"),
    **{
        f"ggml.{name}_token_id": "clients write tokens for filling in the middle into the prompt"
        for name in ("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix",
                     "middle")
    },
}  # fmt: skip


def test_every_key_of_tokenizers_is_read_or_without_effect() -> None:
    values = [value for value in vars(Keys.Tokenizer).values() if isinstance(value, str)]
    prefix = "tokenizer."
    known = {value.removeprefix(prefix) for value in values if value.startswith(prefix)}
    assert known == READ_OF_TOKENIZER | set(UNUSED_OF_TOKENIZER)
