"""What a grammar of calls lets a model write, the parser of the same format reads."""

import itertools
import json
from typing import Any

import pytest
from jsonschema import validate

from penstock_engine.parsers.parts import Call, Content
from penstock_engine.parsers.tool_format import (
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_11,
    PLAIN_LIST,
    Tool,
    ToolFormat,
)
from penstock_engine.parsers.tool_stream import ToolStream
from penstock_engine.structured.grammar import of_schema
from penstock_engine.structured.tool_calls import of_calls, spell
from penstock_engine.tokens import Tokenizer

FORMATS = {
    "hermes": HERMES,
    "llama3_json": LLAMA3_JSON,
    "mistral": MISTRAL,
    "mistral_11": MISTRAL_11,
    "plain_list": PLAIN_LIST,
}
ADD = Tool(
    "add",
    {
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    },
)
SAY = Tool("say.it-1", {"properties": {"t": {"enum": ["</tool_call>", "]}"]}},
                        "required": ["t"], "additionalProperties": False})  # fmt: skip
TOOLS = [ADD, SAY]
NAMES = {tool.name: tool for tool in TOOLS}


def read(form: ToolFormat, text: str) -> list[Call | Content]:
    stream = ToolStream(form, NAMES)
    return [*stream.push(text), *stream.finish()]  # type: ignore[list-item]


@pytest.mark.parametrize("is_many", [False, True])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_demanded_calls_are_calls(compile_now: Any, form: ToolFormat, is_many: bool) -> None:
    grammar = of_calls(form, TOOLS, {}, is_many=is_many, otherwise=None)
    counts = set()
    for seed in range(8):
        text = compile_now.write(grammar, seed)
        if text is None:
            continue
        calls = read(form, text)
        counts.add(len(calls))
        for call in calls:
            assert isinstance(call, Call), text
            validate(json.loads(call.arguments), NAMES[call.name].parameters)
    assert counts
    assert is_many or counts == {1}


@pytest.mark.parametrize(("name", "form"), FORMATS.items(), ids=FORMATS)
def test_free_text_turns_into_calls_only_by_their_opening(
    compile_now: Any, name: str, form: ToolFormat
) -> None:
    grammar = of_calls(form, TOOLS, {}, is_many=True, otherwise="text")
    before, after = form.call
    call = form.first + before % "add" + '{"a": 1}' + after + form.last
    wrong = form.first + before % "rm" + '{"a": 1}' + after + form.last
    assert compile_now.takes(grammar, "")
    assert compile_now.takes(grammar, "Nothing to call here, } or ] or [.")
    assert compile_now.takes(grammar, call)
    assert not compile_now.takes(grammar, wrong)
    assert not compile_now.takes(grammar, call.replace('"a"', '"c"'))
    if not form.bare:
        assert compile_now.takes(grammar, f"Let me see. {call}")
        assert not compile_now.takes(grammar, f"Let me see. {wrong}")


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_an_answer_in_a_form_is_the_other_choice(compile_now: Any, form: ToolFormat) -> None:
    answer = of_schema({"type": "object", "required": ["x"], "additionalProperties": False,
                        "properties": {"x": {"type": "null"}}})  # fmt: skip
    grammar = of_calls(form, TOOLS, {}, is_many=False, otherwise=answer)
    before, after = form.call
    call = form.first + before % "add" + '{"a": 1}' + after + form.last
    call = call if call.startswith(form.opening) else form.opening + call
    assert compile_now.takes(grammar, call)
    assert compile_now.takes(grammar, '{"x": null}')
    assert not compile_now.takes(grammar, '{"y": null}')
    assert not compile_now.takes(grammar, "text")


def test_an_opening_that_is_a_special_token(compile_now: Any, tokenizer: Tokenizer) -> None:
    """Its text, spelt with other tokens, opens nothing."""
    special = "<|im_start|>"
    form = ToolFormat(opening=special, call=(f"{special}%s ", "!"), between="")
    specials = tokenizer.special_tokens
    grammar = of_calls(form, TOOLS, specials, is_many=True, otherwise="text")
    constraint = compile_now(grammar)
    spelt = list(
        itertools.chain.from_iterable(
            tokenizer.encode(character, add_special_tokens=False) for character in special
        )
    )
    call = [specials[special], *tokenizer.encode('add {"a": 1}!')]
    for token in [*tokenizer.encode("hm "), *spelt, *tokenizer.encode("rm "), *call]:
        assert constraint.accept(token)
    assert not constraint.accept(tokenizer.encode("x")[0])
    assert constraint.accept(specials[special])
    assert not constraint.accept(tokenizer.encode("rm")[0])


def test_texts_are_spelt_around_special_tokens() -> None:
    assert spell('a"b\n', {}) == '"a\\"b\\n"'
    assert spell("[A]x[AB]", {"[A]": 7, "[AB]": 8}) == '<[7]> "x" <[8]>'
    assert spell("", {"[A]": 7}) == ""
