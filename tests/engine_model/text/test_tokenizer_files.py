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


def tokenizer_json(model: str, num_spaces: int = 0) -> str:
    """A tokenizer.json, of any size by the spaces in it."""
    return f'{{"version": "1.0", "added_tokens": [], {" " * num_spaces} "model": {model}}}'


@pytest.mark.parametrize("num_spaces", [0, 2 << 20], ids=["small", "large"])
def test_a_large_tokenizer_is_read_as_a_small_one(folder: Path, num_spaces: int) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text()[:-1] + " " * num_spaces + "}")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    assert check_tokenizer(folder, 4) == {3}
    with pytest.raises(ModelError, match="has token 1, but the model has only 1 tokens"):
        check_tokenizer(folder, 1)
    path.write_text(tokenizer_json("{}", num_spaces))
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        check_tokenizer(folder, 4)


@pytest.mark.parametrize("num_spaces", [0, 2 << 20], ids=["small", "large"])
def test_a_tokenizer_with_which_the_library_panics_is_refused(
    folder: Path, num_spaces: int
) -> None:
    model = '{"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a"], ["a", "a"]]}'
    (folder / "tokenizer.json").write_text(tokenizer_json(model, num_spaces))
    with pytest.raises(ModelError, match="cannot be read") as caught:
        check_tokenizer(folder, 4)
    assert caught.value.reason == "BadTokenizer"


def test_a_tokenizer_that_needs_too_much_memory_is_refused(folder: Path) -> None:
    objects = ",".join(['{"":0}'] * (6 << 20 >> 3))
    model = f'{{"type": "BPE", "vocab": {{"a": 0}}, "merges": [], "x": [{objects}]}}'
    (folder / "tokenizer.json").write_text(tokenizer_json(model))
    with pytest.raises(ModelError, match=r"tokenizer\.json needs more than 640 MiB of memory"):
        check_tokenizer(folder, 4)


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
        ("chat_template.jinja", "a" * 200_000, r"chat_template\.jinja has more than 128 KiB"),
        ("tokenizer_config.json", "a" * 200_000, r"tokenizer_config\.json has more than 128 KiB"),
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
