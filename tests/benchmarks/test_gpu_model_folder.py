"""The folder of a model with random weights, from which a server of the checks on a GPU starts."""

import os
from pathlib import Path

import pytest
import torch
from benchmarks.gpu.serving import model_folder
from benchmarks.gpu.serving.model_folder import make_folder, model_bytes, parameter_shapes
from benchmarks.gpu.shapes import SHAPES, config_of
from transformers import AutoModelForCausalLM, AutoTokenizer

GONE = 2**22  # above the largest id of a process


@pytest.mark.parametrize(("name", "num_bytes"), [("0.6b", 1_192_099_840), ("8b", 16_060_522_496)])
def test_shapes_have_the_bytes_of_their_models(name: str, num_bytes: int) -> None:
    assert model_bytes(config_of(name, is_small=False)) == num_bytes
    has_head = "lm_head.weight" in parameter_shapes(SHAPES[name])
    assert has_head is not SHAPES[name]["tie_word_embeddings"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["0.6b", "8b"])
def test_a_folder_is_a_whole_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "SHARD_BYTES", 100_000)
    config = config_of(name, is_small=True)
    model_folder.write_model(tmp_path, config, "cpu", 0)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model, report = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.bfloat16, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert all(weight.float().std() > 0.01 or (weight == 1).all() for weight in model.parameters())
    assert model.generation_config.eos_token_id is None
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == config["vocab_size"]
    assert all(tokenizer.decode([token]) for token in range(len(tokenizer)))


def test_folders_of_dead_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "SHARED_MEMORY", tmp_path)
    left = tmp_path / f"{model_folder.PREFIX}{GONE}-a"
    other = tmp_path / f"{model_folder.PREFIX}{os.getppid()}-b"
    for folder in (left, other):
        folder.mkdir()
    made = make_folder(1000)
    assert sorted(tmp_path.iterdir()) == sorted([other, made])


def test_a_model_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "SHARED_MEMORY", tmp_path / "none")
    with pytest.raises(OSError, match=r"no folder has room for a model of 1000000\.0 GB"):
        make_folder(10**15)
