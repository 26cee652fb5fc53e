"""Draft models and draft heads in the preflight."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine_server.preflight.preflight_models import (
    GIB,
    checked,
)

from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import checkpoint_tensors, draft_head_parameters
from penstock_engine.options.config import EngineConfig


def write_draft_head(folder: Path, hidden_size: int, fc: tuple[int, int]) -> None:
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden_size, "vocab_size": 512,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"fc.weight": torch.zeros(fc)}
    parameters = draft_head_parameters(ModelConfig.load(folder), has_bias=False)
    for name, shape in checkpoint_tensors(ModelConfig.load(folder), parameters, ()):
        tensors.setdefault(name, torch.zeros(shape))
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_a_draft_model_that_is_missing_is_named_by_its_path(
    model_dir: Path, tmp_path: Path, method: Any
) -> None:
    draft = str(tmp_path / "nowhere")
    speculation = SpeculationConfig(method=method, num_speculative_tokens=2, model=draft)
    config = EngineConfig(model_dir=model_dir, dtype="float32", speculative_config=speculation)
    verdict = checked(config, memory_limit_bytes=2 * GIB)
    assert (verdict["ok"], verdict["reason"]) == (False, "BadDraftModel")
    assert f"({draft}): there is no model directory" in verdict["message"]
    assert "spec.engine.speculative.model.uri" in verdict["message"]


def test_a_draft_head_is_counted_and_must_fit_the_model(model_dir: Path, tmp_path: Path) -> None:
    """Its weights and cache are part of the sizes, and heads of other shapes are rejected."""
    hidden_size = json.loads((model_dir / "config.json").read_text())["hidden_size"]

    def verdict(name: str, hidden_size: int, fc: tuple[int, int]) -> dict[str, Any]:
        if not (tmp_path / name).exists():
            write_draft_head(tmp_path / name, hidden_size, fc)
        speculation = SpeculationConfig(
            method="eagle", num_speculative_tokens=2, model=str(tmp_path / name)
        )
        config = EngineConfig(model_dir=model_dir, dtype="float32", speculative_config=speculation)
        return checked(config, memory_limit_bytes=2 * GIB)

    plain = checked(EngineConfig(model_dir=model_dir, dtype="float32"), memory_limit_bytes=2 * GIB)
    fitting = verdict("fitting", hidden_size, (hidden_size, 2 * hidden_size))
    head = load_file(tmp_path / "fitting" / "model.safetensors")
    num_bytes = sum(tensor.nbytes for tensor in head.values())
    assert fitting["weights_bytes"] - plain["weights_bytes"] == num_bytes > 2 * hidden_size**2 * 4
    assert fitting["kv_bytes_per_token"] > plain["kv_bytes_per_token"]
    del head["layers.0.mlp.down_proj.weight"]
    save_file(head, tmp_path / "fitting" / "model.safetensors")
    incomplete = verdict("fitting", hidden_size, (hidden_size, 2 * hidden_size))
    assert (incomplete["ok"], incomplete["reason"]) == (False, "BadDraftModel")
    assert "asks for layers.0.mlp.down_proj.weight, which is not there" in incomplete["message"]
    for name, width, fc in (("wide", 2 * hidden_size, (4, 4)), ("other", hidden_size, (4, 4))):
        mismatch = verdict(name, width, fc)
        assert (mismatch["ok"], mismatch["reason"]) == (False, "DraftMismatch")
