"""Adapters that were made for another model, tokenizer or chat template."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.lora.base_model import BaseModel, recorded_names

TOKENS = {"<|end|>": 7, "hello": 8}
NAMES = ("acme/Soup-1B", "kettle")


def reason(folder: Path, base: BaseModel, **config: Any) -> str:
    """The reason for which an adapter is refused; "" if it is not."""
    try:
        base.check(config, AdapterFolder(folder, folder))
    except ModelError as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    ("name", "is_logged"),
    [
        ("acme/Soup-1B", False),
        ("copies/soup-1b", False),
        ("copies/Soup-1B-unsloth-bnb-4bit", False),
        ("copies/Soup-1B-GPTQ-Int4", False),
        ("acme/Meta-Soup-1B", False),  # a repository that was renamed
        ("acme/kettle", False),  # a name of the served model
        ("acme/Soup-1B-Chat", True),
        ("acme/Soup-7B", True),
        ("/models/stew", False),
        ("stew", False),
        (None, False),
        (7, False),
    ],
)
def test_another_name_of_the_base_model_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: Any, is_logged: bool
) -> None:
    """A fine-tuned model may record the name of its parent, so an adapter of it is not refused."""
    assert reason(tmp_path, BaseModel(()), base_model_name_or_path=name) == ""
    assert caplog.messages == []
    assert reason(tmp_path, BaseModel(NAMES), base_model_name_or_path=name) == ""
    told = f"adapter {tmp_path.name} was made for {name}, and the served model is known as acme/Soup-1B: "
    assert [message[: len(told)] for message in caplog.messages] == ([told] if is_logged else [])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"_name_or_path": "acme/soup-1b"}', ("acme/soup-1b", "model", "chat")),
        (b'{"_name_or_path": "/home/me/soup"}', ()),
        (b'{"_name_or_path": 7}', ()),
        (b"{}", ()),
        (b"[]", ()),
        (b"{", ()),
        (b"[" * 100_000, ()),
        (None, ()),
    ],
)
def test_names_that_a_model_records(
    tmp_path: Path, content: bytes | None, expected: tuple[str, ...]
) -> None:
    (tmp_path / "model").mkdir()
    if content is not None:
        (tmp_path / "model" / "config.json").write_bytes(content)
    assert recorded_names(tmp_path / "model", ["chat"]) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"added_tokens.json": {"<|end|>": 7}}, ""),
        ({"added_tokens.json": {"<|end|>": 9}}, "TokenizerChanged"),
        ({"added_tokens.json": {"<|sql|>": 9}}, "TokenizerChanged"),
        ({"added_tokens.json": ["<|sql|>"]}, ""),
        ({"tokenizer.json": {"added_tokens": [{"id": 7, "content": "<|end|>"}]}}, ""),
        (
            {"tokenizer.json": {"added_tokens": [{"id": 9, "content": "<|sql|>"}]}},
            "TokenizerChanged",
        ),
        ({"tokenizer.json": {"added_tokens": [{"content": "<|sql|>"}]}}, ""),
        ({"tokenizer.json": {"added_tokens": [7]}}, ""),
        ({"tokenizer.json": {"model": {"vocab": {"new": 9}}}}, ""),
        ({"tokenizer_config.json": {"chat_template": "{{ messages }}"}}, "ChatTemplateAdded"),
        ({"tokenizer_config.json": {"chat_template": None}}, ""),
        ({"chat_template.jinja": "{{ messages }}"}, "ChatTemplateAdded"),
    ],
    ids=str,
)
def test_tokens_and_templates(tmp_path: Path, files: dict[str, Any], expected: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    base = BaseModel(NAMES, TOKENS.get, has_template=False)
    assert reason(tmp_path, base) == expected
    with_template = BaseModel(NAMES, TOKENS.get, has_template=True)
    assert reason(tmp_path, with_template) == expected.replace("ChatTemplateAdded", "")


def test_the_start_of_a_large_tokenizer_is_enough(tmp_path: Path) -> None:
    added = [{"id": 9, "content": "<|sql|>"}]
    vocab = {f"token{number}": number for number in range(100_000)}
    content = {"added_tokens": added, "model": {"vocab": vocab}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    base = BaseModel(NAMES, TOKENS.get)
    assert reason(tmp_path, base) == "TokenizerChanged"


def test_a_pipe_in_place_of_a_tokenizer_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    assert reason(tmp_path, BaseModel(NAMES, TOKENS.get)) == "NotAFile"
