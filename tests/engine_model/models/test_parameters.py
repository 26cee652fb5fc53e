"""The list of a model's parameters equals the modules that are built, and what is read for them."""

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.support.engine.families import FAMILIES

from penstock_engine.core.errors import ModelError
from penstock_engine.memory.model_files import check_tensors
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.draft_head import DraftHeadDecoder
from penstock_engine.models.parameters import (
    checkpoint_tensors,
    draft_head_parameters,
    model_parameters,
)


def build(config: ModelConfig) -> DecoderForCausalLM:
    return DecoderForCausalLM(config, max_positions=8, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_list_is_that_of_the_model_and_of_its_checkpoint(tmp_path: Path, family: str) -> None:
    FAMILIES[family].make(tmp_path)
    config = ModelConfig.load(tmp_path)
    built = {name: tuple(value.shape) for name, value in build(config).named_parameters()}
    assert dict(model_parameters(config)) == built
    stored: dict[str, tuple[int, ...]] = {}
    for path in tmp_path.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            stored |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
    assert dict(checkpoint_tensors(config, model_parameters(config), stored)) == stored


@pytest.mark.parametrize("family", ["llama", "phi", "gemma3", "mixtral", "qwen3-moe"])
def test_each_missing_tensor_is_found_by_the_headers(tmp_path: Path, family: str) -> None:
    FAMILIES[family].make(tmp_path)
    config = ModelConfig.load(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink(missing_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    for path in tmp_path.glob("*.safetensors"):
        tensors |= load_file(path)
        path.unlink()
    for missing in tensors:
        if ".layers.1." in missing or ".layers.2." in missing:
            continue
        rest = {name: tensor for name, tensor in tensors.items() if name != missing}
        save_file(rest, tmp_path / "model.safetensors")
        with pytest.raises(ModelError, match=f"asks for {re.escape(missing)}, which is not there"):
            check_tensors(tmp_path, config, model_parameters(config), None, "float32")


def test_tensors_of_any_number_of_experts_are_named_one_by_one(tmp_path: Path) -> None:
    """A configuration of some bytes may ask for a billion tensors, which no checkpoint has."""
    FAMILIES["qwen3-moe"].make(tmp_path)
    config = ModelConfig.load(tmp_path)
    assert config.experts is not None
    larger = replace(config, experts=replace(config.experts, num_experts=10**9))
    first = list(islice(checkpoint_tensors(larger, model_parameters(larger), ()), 100))
    assert first[-1][0].startswith("model.layers.0.mlp.experts.")


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_list_of_a_draft_head_is_that_of_its_modules(tmp_path: Path, *, has_bias: bool) -> None:
    FAMILIES["llama"].make(tmp_path)
    config = ModelConfig.load(tmp_path)
    head = DraftHeadDecoder(
        config, build(config), has_bias=has_bias, max_positions=8, dtype=torch.float32, device="cpu"
    )
    built = {name: tuple(value.shape) for name, value in head.named_parameters()}
    assert dict(draft_head_parameters(config, has_bias=has_bias)) == built
