import json
from pathlib import Path
from typing import Any

import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.models.config import ModelConfig

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1000,
    "eos_token_id": 7,
}


def test_a_plain_config() -> None:
    config = ModelConfig.parse(CONFIG, {"eos_token_id": [8, 9]})
    assert (config.head_dim, config.num_kv_heads, config.qk_norm) == (32, 2, True)
    assert config.eos_token_ids == {7, 8, 9}
    assert config.kv_bytes_per_token(2) == 2 * 2 * 2 * 32 * 2


def test_what_is_left_out_has_the_usual_value() -> None:
    raw = {k: v for k, v in CONFIG.items() if k not in ("num_key_value_heads", "head_dim")}
    config = ModelConfig.parse(raw, {})
    assert (config.num_kv_heads, config.head_dim, config.rope.theta) == (4, 16, 10000.0)
    assert not config.tie_word_embeddings


@pytest.mark.parametrize(
    ("rope", "max_model_len"),
    [
        ({"rope_scaling": None, "rope_theta": 5e5}, 1000),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 2000),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 1000),
        (
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 4,
                    "original_max_position_embeddings": 500,
                }
            },
            2000,
        ),
    ],
    ids=["default", "linear", "dynamic", "yarn"],
)
def test_old_and_new_spellings_of_rope(rope: dict[str, Any], max_model_len: int) -> None:
    assert ModelConfig.parse({**CONFIG, **rope}, {}).max_model_len == max_model_len


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "UnsupportedArchitecture", "MambaForCausalLM"),
        ({"architectures": None}, "UnsupportedArchitecture", "unknown"),
        ({"hidden_size": "64"}, "BadConfig", "hidden_size"),
        ({"num_hidden_layers": 0}, "BadConfig", "num_hidden_layers"),
        ({"vocab_size": None}, "BadConfig", "vocab_size"),
        ({"num_key_value_heads": 3}, "BadConfig", "multiple"),
        ({"head_dim": 31}, "BadConfig", "even"),
        ({"hidden_act": "gelu"}, "BadConfig", "gelu"),
        ({"quantization_config": {"quant_method": "awq"}}, "BadConfig", "quantized"),
        ({"use_sliding_window": True}, "BadConfig", "full"),
        ({"layer_types": ["sliding_attention"]}, "BadConfig", "sliding_attention"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "BadConfig", "longrope"),
        ({"rope_scaling": {"rope_type": "linear"}}, "BadConfig", "factor"),
        ({"rope_scaling": [1]}, "BadConfig", "rope_parameters"),
        ({"partial_rotary_factor": 0.5}, "BadConfig", "partial_rotary_factor"),
        ({"eos_token_id": "</s>"}, "BadConfig", "eos_token_id"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_served_says_why(changes: dict[str, Any], reason: str, message: str) -> None:
    """Nothing that changes the mathematics is passed over in silence."""
    with pytest.raises(ModelError, match=message) as caught:
        ModelConfig.parse({**CONFIG, **changes}, {})
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (None, "ModelNotFound"),
        ({}, "NotAModel"),
        ({"config.json": "{"}, "BadConfig"),
        ({"config.json": "[]"}, "BadConfig"),
        ({"config.json": json.dumps(CONFIG), "generation_config.json": "{"}, "BadConfig"),
    ],
)
def test_directories_that_are_no_models(
    tmp_path: Path, files: dict[str, str] | None, reason: str
) -> None:
    directory = tmp_path / "model"
    if files is not None:
        directory.mkdir()
        for name, text in files.items():
            (directory / name).write_text(text)
    with pytest.raises(ModelError) as caught:
        ModelConfig.load(directory)
    assert caught.value.reason == reason
    assert str(tmp_path) not in str(caught.value)
