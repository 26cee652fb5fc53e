"""Tests of tool call grammars: all that a grammar allows, the parser of the same format can read."""

import itertools
import json
from typing import Any

import pytest
from jsonschema import validate
from tests.engine_structured.joined_parts import Joined, JoinedCall, join

from penstock_engine.parsers.tool_call_parser import ToolCallParser
from penstock_engine.parsers.tool_format import (
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_11,
    PLAIN_LIST,
    Tool,
    ToolFormat,
)
from penstock_engine.structured.grammar import json_schema_grammar
from penstock_engine.structured.tool_calls import to_lark, tool_call_grammar
from penstock_engine.text.tokens import Tokenizer

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


def read(form: ToolFormat, text: str) -> list[Joined]:
    stream = ToolCallParser(form, NAMES)
    return join([*stream.push(text), *stream.finish()])


@pytest.mark.parametrize("is_many", [False, True])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_grammar_without_alternative_yields_valid_calls(
    compile_now: Any, form: ToolFormat, is_many: bool
) -> None:
    grammar = tool_call_grammar(form, TOOLS, {}, is_many=is_many, alternative=None)
    counts = set()
    for seed in range(8):
        text = compile_now.write(grammar, seed)
        if text is None:
            continue
        calls = read(form, text)
        counts.add(len(calls))
        for call in calls:
            assert isinstance(call, JoinedCall), text
            validate(json.loads(call.arguments), NAMES[call.name].parameters)
    assert counts
    assert is_many or counts == {1}


@pytest.mark.parametrize(("name", "form"), FORMATS.items(), ids=FORMATS)
def test_a_text_alternative_allows_any_text_but_only_valid_calls(
    compile_now: Any, name: str, form: ToolFormat
) -> None:
    grammar = tool_call_grammar(form, TOOLS, {}, is_many=True, alternative="text")
    before, after = form.call
    call = form.first + before % "add" + '{"a": 1}' + after + form.last
    wrong = form.first + before % "rm" + '{"a": 1}' + after + form.last
    assert compile_now.matches(grammar, "")
    assert compile_now.matches(grammar, "Nothing to call here, } or ] or [.")
    assert compile_now.matches(grammar, call)
    assert not compile_now.matches(grammar, wrong)
    assert not compile_now.matches(grammar, call.replace('"a"', '"c"'))
    if not form.bare:
        assert compile_now.matches(grammar, f"Let me see. {call}")
        assert not compile_now.matches(grammar, f"Let me see. {wrong}")


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_grammar_alternative_allows_its_answer_or_a_call(
    compile_now: Any, form: ToolFormat
) -> None:
    answer = json_schema_grammar({"type": "object", "required": ["x"], "additionalProperties": False,
                        "properties": {"x": {"type": "null"}}})  # fmt: skip
    grammar = tool_call_grammar(form, TOOLS, {}, is_many=False, alternative=answer)
    before, after = form.call
    call = form.first + before % "add" + '{"a": 1}' + after + form.last
    call = call if call.startswith(form.opening) else form.opening + call
    assert compile_now.matches(grammar, call)
    assert compile_now.matches(grammar, '{"x": null}')
    assert not compile_now.matches(grammar, '{"y": null}')
    assert not compile_now.matches(grammar, "text")


def test_only_the_special_token_opens_a_call_not_its_text(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    special = "<|im_start|>"
    form = ToolFormat(opening=special, call=(f"{special}%s ", "!"), between="")
    specials = tokenizer.special_tokens
    grammar = tool_call_grammar(form, TOOLS, specials, is_many=True, alternative="text")
    constraint = compile_now(grammar)
    as_text = list(
        itertools.chain.from_iterable(
            tokenizer.encode(character, add_special_tokens=False) for character in special
        )
    )
    call = [specials[special], *tokenizer.encode('add {"a": 1}!')]
    for token in [*tokenizer.encode("hm "), *as_text, *tokenizer.encode("rm "), *call]:
        assert constraint.accept(token)
    assert not constraint.accept(tokenizer.encode("x")[0])
    assert constraint.accept(specials[special])
    assert not constraint.accept(tokenizer.encode("rm")[0])


def test_to_lark_writes_special_tokens_by_id() -> None:
    assert to_lark('a"b\n', {}) == '"a\\"b\\n"'
    assert to_lark("[A]x[AB]", {"[A]": 7, "[AB]": 8}) == '<[7]> "x" <[8]>'
    assert to_lark("", {"[A]": 7}) == ""
