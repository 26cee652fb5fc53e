"""Tests of default sampling parameters from generation_config.json and from flags."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.server.requests.defaults import GenerationDefaults, generation_defaults

MODEL_FILE = {
    "eos_token_id": [2], "do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
    "max_new_tokens": 100, "transformers_version": "5.17.0",
}  # fmt: skip
PARAMETERS = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "generation_config.json").write_text(json.dumps(MODEL_FILE))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "override", "expected"),
    [
        ("auto", {}, GenerationDefaults(PARAMETERS, 100, None)),
        ("vllm", {}, GenerationDefaults({}, None, None)),
        ("auto", {"top_p": 0.5}, GenerationDefaults(PARAMETERS | {"top_p": 0.5}, 100, None)),
        ("auto", {"max_new_tokens": 9}, GenerationDefaults(PARAMETERS, 9, 9)),
        ("vllm", {"min_p": 0.1}, GenerationDefaults({"min_p": 0.1}, None, None)),
        ("folder", {}, GenerationDefaults(PARAMETERS, 100, 100)),
    ],
)
def test_defaults_come_from_source_and_override(
    model: Path, source: str, override: dict[str, Any], expected: GenerationDefaults
) -> None:
    source = str(model) if source == "folder" else source
    assert generation_defaults(model, source, override) == expected


def test_a_model_without_the_file_has_no_defaults(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path, "auto", {}) == GenerationDefaults()


@pytest.mark.parametrize("content", ["{", "[]", '{"temperature": -1}', '{"top_k": "many"}'])
def test_an_invalid_file_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ModelError) as error:
        generation_defaults(tmp_path, "auto", {})
    assert error.value.reason == "BadGenerationConfig"


@pytest.mark.parametrize("override", [{"top_p": 2}, {"max_new_tokens": 0}])
def test_an_invalid_override_is_rejected(tmp_path: Path, override: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        generation_defaults(tmp_path, "auto", override)


def test_a_folder_without_the_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        generation_defaults(tmp_path, str(tmp_path), {})
