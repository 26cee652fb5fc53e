"""Constraints on the text of an answer, in the spelling of each server: used, without effect, or refused."""

import json
from typing import Any

import pytest

from penstock_engine.server.requests.bodies import parse
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.formats import ResponseFormat, StructuredOutputs
from penstock_engine.server.transport.errors import RequestError

Json = dict[str, Any]

MESSAGES = [{"role": "user", "content": "x"}]
SCHEMA = {"enum": ["positive"]}
USED: list[Json] = [
    {
        "response_format": {"type": "json_object", "schema": SCHEMA}
    },  # llama.cpp, Together, Fireworks
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"regex": "a"}},
    {"structured_outputs": {"grammar": 'root ::= "a"'}},
]
WITHOUT_EFFECT: list[Json] = [
    {"response_format": {"type": "text"}}, {"response_format": None}, {"grammar": ""},
    {"grammar": None}, {"json_schema": None}, {"regex": None}, {"ebnf": None}, {"format": ""},
    {"guided_json_object": False}, {"guided_decoding_backend": "outlines"}, {"stop_regex": []},
]  # fmt: skip
REFUSED: list[tuple[str, Any]] = [
    ("grammar", 'root ::= "a"'),  # llama.cpp, LM Studio
    ("json_schema", SCHEMA),  # llama.cpp, SGLang
    ("regex", "a"),  # SGLang
    ("ebnf", 'root ::= "a"'),  # SGLang
    ("structural_tag", "{}"),  # SGLang
    ("format", "json"),  # Ollama
    ("format", SCHEMA),
    ("grammar_string", 'root ::= "a"'),  # text-generation-webui
    ("guided_json", SCHEMA),  # former vLLM, as the next ones
    ("guided_regex", "a"),
    ("guided_choice", ["a"]),
    ("guided_grammar", 'root ::= "a"'),
    ("guided_json_object", True),
    ("guided_whitespace_pattern", " "),
    ("extra_body", {"guided_json": SCHEMA}),  # sent by a client that is not OpenAI's
    ("response_format", {"type": "json", "value": SCHEMA}),  # text-generation-inference
    ("response_format", {"type": "regex", "value": "a"}),
    ("response_format", {"type": "regex", "pattern": "a"}),  # Together
    ("response_format", {"type": "grammar", "grammar": 'root ::= "a"'}),  # Fireworks
    ("response_format", {"type": "structural_tag", "format": {}}),  # vLLM, SGLang
    ("structured_outputs", {"structural_tag": "{}"}),
]


def read(body: Json) -> ChatCompletionRequest:
    return parse(ChatCompletionRequest, json.dumps({"messages": MESSAGES} | body).encode())


def constraint(request: ChatCompletionRequest) -> object:
    requested = request.structured_outputs or request.response_format
    return requested.grammar() if requested else None


@pytest.mark.parametrize("body", USED, ids=str)
def test_a_constraint_is_used(body: Json) -> None:
    assert constraint(read(body)) is not None


@pytest.mark.parametrize("body", WITHOUT_EFFECT, ids=str)
def test_a_value_that_constrains_nothing_is_passed_over(body: Json) -> None:
    assert constraint(read(body)) is None


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=str)
def test_a_constraint_that_would_be_passed_over_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        read({name: value})
    assert refusal.value.status == 400
    assert refusal.value.param == name
    if name not in ("extra_body", "response_format", "structured_outputs"):
        expected = f"{name} is not supported: use structured_outputs or response_format"
        assert refusal.value.message == expected


@pytest.mark.parametrize(
    ("form", "texts", "others"),
    [
        ({"json": {"const": [1]}}, ["[1]", "[ 1]", "[\n1 ]"], ["[1]x"]),
        ({"json": {"const": [1]}, "disable_any_whitespace": True}, ["[1]"], ["[ 1]"]),
        ({"json": {"const": [1], "x-guidance": {"whitespace_flexible": False}}}, ["[1]"], ["[ 1]"]),
        ({"json": {"const": [1]}, "whitespace_pattern": " "}, ["[1]", "[ 1]"], ["[\n1]", "[  1]"]),
        ({"json": {"type": "object", "properties": {"a": {"const": 1}}},
          "disable_additional_properties": True}, ["{}", '{"a": 1}'], ['{"b": 1}']),
        ({"grammar": '?start: word\n!word: "a" | "b"\n'}, ["a", "b"], ["c"]),
        ({"grammar": 'start: X?\nX: "?x" | "!y:"\n'}, ["", "?x", "!y:"], ["x"]),
        ({"grammar": 'root ::= "?a:" w?\nw ::= "b"'}, ["?a:", "?a:b"], ["a:"]),
    ],
)  # fmt: skip
def test_fields_and_syntax_of_vllms_structured_outputs(
    compile_now: Any, form: Json, texts: list[str], others: list[str]
) -> None:
    grammar = StructuredOutputs.model_validate(form).grammar()
    assert [text for text in texts if not compile_now.matches(grammar, text)] == []
    assert [text for text in others if compile_now.matches(grammar, text)] == []


def test_the_schema_of_a_json_object_is_enforced(compile_now: Any) -> None:
    schema = {"properties": {"a": {"const": 1}}, "additionalProperties": False}
    form = ResponseFormat.model_validate({"type": "json_object", "schema": schema})
    assert compile_now.matches(form.grammar(), '{"a": 1}')
    assert not compile_now.matches(form.grammar(), "[]")
    assert not compile_now.matches(form.grammar(), '{"b": 1}')
