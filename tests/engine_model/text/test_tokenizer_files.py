"""A tokenizer's files are checked as the server loads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from penstock_engine.core.errors import ModelError
from penstock_engine.text.template import check_own_templates
from penstock_engine.text.tokenizer_files import check_tokenizer
from penstock_engine.text.tokens import Tokenizer

TURN_END = {
    "__type": "AddedToken", "content": "<|im_end|>", "lstrip": False, "normalized": False,
    "rstrip": False, "single_word": False, "special": True,
}  # fmt: skip
DECODER = {"3": {key: value for key, value in TURN_END.items() if key != "__type"}}
MAP_ENTRY = {key: value for key, value in TURN_END.items() if key not in ("__type", "special")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer with the tokens a and b, <|endoftext|> (2) and <|im_end|> (3)."""
    backend = Backend(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    backend.add_special_tokens([AddedToken("<|endoftext|>"), AddedToken("<|im_end|>")])
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "special_tokens", "expected"),
    [
        (None, None, set()),
        ({}, None, set()),
        ({"eos_token": None}, None, set()),
        ({"eos_token": "<|im_end|>"}, None, {3}),
        ({"eos_token": TURN_END}, None, {3}),
        ({"eos_token": "<|endoftext|>", "added_tokens_decoder": DECODER}, None, {2}),
        (None, {"eos_token": "<|im_end|>"}, {3}),
        ({"eos_token": "<|endoftext|>"}, {"eos_token": MAP_ENTRY}, {3}),
        (
            {"eos_token": "<|endoftext|>", "added_tokens_decoder": DECODER},
            {"eos_token": "<|im_end|>"},
            {2},
        ),
    ],
    ids=str,
)
def test_the_end_token_is_that_of_transformers(
    folder: Path,
    settings: dict[str, Any] | None,
    special_tokens: dict[str, Any] | None,
    expected: set[int],
) -> None:
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if special_tokens is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(special_tokens))
    assert check_tokenizer(folder, 4) == expected
    theirs = PreTrainedTokenizerFast.from_pretrained(folder).eos_token_id
    assert ({theirs} - {None}) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "[" * 100_000, "tokenizer.json cannot be read"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be read"),
        ("tokenizer_config.json", "{", "tokenizer_config.json cannot be read as JSON"),
        ("tokenizer_config.json", "[" * 100_000, "tokenizer_config.json cannot be read as JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json must be a JSON object"),
        ("special_tokens_map.json", "{", "special_tokens_map.json cannot be read as JSON"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(
    folder: Path, name: str, content: str, message: str
) -> None:
    (folder / name).write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        check_tokenizer(folder, 4)
    assert caught.value.reason == "BadTokenizer"
    with pytest.raises(ModelError):
        Tokenizer(folder)


def test_templates_in_settings_that_cannot_be_read_are_refused(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json cannot be read") as caught:
        check_own_templates(folder)
    assert caught.value.reason == "BadTokenizer"


BROKEN = "{% for m in messages %}"
OUTSIDE_OF_A_LOOP = "{% break %}"
TOLD_BY_TRANSFORMERS = "{% generation %}{{ messages[0].content }}{% endgeneration %}"


@pytest.mark.parametrize(
    ("name", "template", "message"),
    [
        (
            "chat_template.jinja",
            BROKEN,
            r"chat_template\.jinja: line 1: Unexpected end of template",
        ),
        ("chat_template.jinja", OUTSIDE_OF_A_LOOP, r"chat_template\.jinja: 'break' outside loop"),
        ("tokenizer_config.json", BROKEN, r"chat_template of tokenizer_config\.json: line 1: Unex"),
        (
            "tokenizer_config.json",
            [{"name": "default", "template": "ok"}, {"name": "tool_use", "template": BROKEN}],
            r"chat_template of tokenizer_config\.json: line 1: Unexpected",
        ),
    ],
)
def test_a_template_that_cannot_be_compiled_is_refused(
    folder: Path, name: str, template: Any, message: str
) -> None:
    is_settings = name.endswith(".json")
    content = json.dumps({"chat_template": template}) if is_settings else template
    (folder / name).write_text(content)
    for check in (check_own_templates, Tokenizer):
        with pytest.raises(ModelError, match=message) as caught:
            check(folder)
        assert caught.value.reason == "BadChatTemplate"


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", TOLD_BY_TRANSFORMERS])
def test_templates_of_transformers_are_accepted(folder: Path, template: str) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    check_own_templates(folder)
    assert Tokenizer(folder).render_chat([{"role": "user", "content": "ab"}]) == "ab"


def test_named_templates_without_a_default_are_no_chat_template(folder: Path) -> None:
    named = [{"name": "rag", "template": "{{ messages[0].content }}"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert not Tokenizer(folder).has_chat_template
