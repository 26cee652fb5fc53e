"""Structured output and tool calls, as clients of a running engine see them."""

import json
import re
from typing import Any

import pytest
from jsonschema import validate
from prometheus_client.parser import text_string_to_metric_families

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Oslo", "Ulm"]},
                "place": {"$ref": "#/$defs/place"},
            },
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"place": {"type": "integer", "minimum": 1, "maximum": 9}},
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
ChatEngine = Any  # the class of conftest.py


def bias_towards(engine: ChatEngine, characters: str = '"}]') -> dict[str, float]:
    """Returns a logit_bias for the characters, without which random text would rarely end."""
    answers = [
        engine.client.post("/tokenize", json={"prompt": c, "add_special_tokens": False}).json()
        for c in characters
    ]
    return {str(answer["tokens"][-1]): 8.0 for answer in answers}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "parameters",
    [
        {"response_format": {"type": "json_schema",
                             "json_schema": {"name": "person", "schema": PERSON, "strict": True}}},
        {"structured_outputs": {"json": PERSON}},
        {"structured_outputs": {"json": json.dumps(PERSON)}},
    ],
)  # fmt: skip
def test_an_answer_matches_its_json_schema(
    plain_engine: ChatEngine, parameters: dict[str, Any], seed: int
) -> None:
    choice = plain_engine.ask(**parameters, seed=seed)
    assert choice["finish_reason"] == "stop"
    validate(json.loads(choice["message"]["content"]), PERSON)
    plain_engine.assert_stream_equals(choice, **parameters, seed=seed)


def test_speculation_does_not_change_structured_output(
    plain_engine: ChatEngine, launch: Any
) -> None:
    """Drafts that the grammar rejects are rolled back, and a seed samples the same tokens."""
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1})
    client, _ = launch("--max-model-len", "1024", "--speculative-config", config)
    speculating = type(plain_engine)(client)
    words = {"type": "array", "items": {"enum": ["tea", "rain"]}, "minItems": 8, "maxItems": 8}
    for seed in range(2):
        body = {"structured_outputs": {"json": words}, "seed": seed, "temperature": 0.5}
        assert speculating.ask(**body) == plain_engine.ask(**body)


def test_each_choice_has_its_own_grammar_state(plain_engine: ChatEngine) -> None:
    body = {"n": 6, "structured_outputs": {"json": PERSON}}
    choices = plain_engine.post(body).json()["choices"]
    texts = [choice["message"]["content"] for choice in choices]
    assert len(set(texts)) == 6
    for text in texts:
        validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    ("structured_outputs", "expected"),
    [
        ({"choice": ["yes", "no, never"]}, r"yes|no, never"),
        ({"choice": ['é"\\n', "a/b"]}, r'é"\\n|a/b'),
        ({"regex": r"[a-f]{3}/[0-9]{2,4}"}, r"[a-f]{3}/[0-9]{2,4}"),
        ({"grammar": 'start: "a"{2,5} TAIL\nTAIL: /[xy]{2}/'}, r"a{2,5}[xy]{2}"),
        ({"grammar": 'root ::= "a" ("b" | "c")'}, r"a[bc]"),
    ],
)
def test_a_completion_matches_its_choice_regex_or_grammar(
    plain_engine: ChatEngine, structured_outputs: dict[str, Any], expected: str
) -> None:
    body = {"prompt": "The engine", "max_tokens": 60, "seed": 5}
    body |= {"structured_outputs": structured_outputs}
    (choice,) = plain_engine.client.post("/v1/completions", json=body).json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(expected, choice["text"]), choice["text"]


@pytest.mark.parametrize("parameters", [
    {"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}},
])  # fmt: skip
def test_json_object_answers_are_objects(
    plain_engine: ChatEngine, parameters: dict[str, Any]
) -> None:
    bias = bias_towards(plain_engine)
    choices = [plain_engine.ask(**parameters, seed=seed, logit_bias=bias) for seed in range(8)]
    texts = [c["message"]["content"] for c in choices if c["finish_reason"] == "stop"]
    assert texts
    assert all(isinstance(json.loads(text), dict) for text in texts)


@pytest.mark.parametrize("min_tokens", [0, 30])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_complete_grammar_ends_the_answer(
    plain_engine: ChatEngine, min_tokens: int, ignore_eos: bool
) -> None:
    choice = plain_engine.ask(
        structured_outputs={"choice": ["ab"]}, min_tokens=min_tokens, ignore_eos=ignore_eos
    )
    assert (choice["message"]["content"], choice["finish_reason"]) == ("ab", "stop")


def test_min_tokens_applies_if_the_grammar_allows_more_text(plain_engine: ChatEngine) -> None:
    body = {"structured_outputs": {"regex": "[ab]+"}, "min_tokens": 40, "max_tokens": 60}
    answer = plain_engine.post(body).json()
    assert answer["usage"]["completion_tokens"] >= 40


def test_stop_strings_end_structured_output(plain_engine: ChatEngine) -> None:
    choice = plain_engine.ask(structured_outputs={"regex": "a{50}"}, stop=["aaaa"])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize(
    "tool_choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
@pytest.mark.parametrize("has_parser", [False, True])
def test_tool_choice_can_require_a_call(
    engine: ChatEngine, plain_engine: ChatEngine, tool_choice: Any, has_parser: bool
) -> None:
    engine = engine if has_parser else plain_engine
    body = {
        "tools": [WEATHER, NOW], "tool_choice": tool_choice, "parallel_tool_calls": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    choice = engine.ask(**body)
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == ("tool_calls" if tool_choice == "required" else "stop")
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert call["function"]["name"] in ("get_weather", "now")
    if call["function"]["name"] == "get_weather":
        validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])  # type: ignore[index]
    engine.assert_stream_equals(choice, **body)


def test_a_required_answer_can_have_several_calls(plain_engine: ChatEngine) -> None:
    bias = bias_towards(plain_engine, '"}],')
    answers = (
        plain_engine.ask(tools=[NOW], tool_choice="required", seed=seed, logit_bias=bias)
        for seed in range(12)
    )
    assert any(len(answer["message"].get("tool_calls", ())) > 1 for answer in answers)


def test_calls_of_strict_tools_match_their_schema(engine: ChatEngine) -> None:
    strict = {"type": "function", "function": WEATHER["function"] | {"strict": True}}  # type: ignore[operator]
    for seed in range(3):
        choice = engine.ask(tools=[strict], seed=seed, max_tokens=80)
        for call in choice["message"].get("tool_calls", ()):
            validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])  # type: ignore[index]


def test_text_without_calls_is_content(engine: ChatEngine) -> None:
    free = engine.ask(tools=[NOW], tool_choice="auto", max_tokens=20)
    assert free["message"]["content"]
    assert "tool_calls" not in free["message"]
    assert engine.ask(tools=[NOW], tool_choice="none", max_tokens=20) == free


def test_unknown_fields_of_tools_have_no_effect(engine: ChatEngine) -> None:
    """The fields change neither the prompt nor the grammar."""
    extra = {"cache_control": {"type": "ephemeral"}}
    function = NOW["function"] | extra  # type: ignore[operator]
    for choice in ("auto", NOW):
        named = choice if choice == "auto" else NOW | extra | {"function": function}
        without = engine.ask(tools=[NOW], tool_choice=choice, max_tokens=20)
        extended = engine.ask(
            tools=[NOW | extra | {"function": function}], tool_choice=named, max_tokens=20
        )
        assert engine.without_call_ids(extended) == engine.without_call_ids(without)


def test_a_custom_tool_of_a_response_is_called_with_text(engine: ChatEngine) -> None:
    """The call is an item with its input. A stream has an event for each input."""
    body = {
        "input": "Edit.", "max_output_tokens": 120, "tool_choice": "required", "temperature": 1.0,
        "tools": [{"type": "custom", "name": "edit"}], "logit_bias": bias_towards(engine),
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    num_calls = 0
    for seed in range(4):
        whole = engine.client.post("/v1/responses", json=body | {"seed": seed}).json()
        text = engine.client.post("/v1/responses", json=body | {"seed": seed, "stream": True}).text
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        calls = [item for item in whole["output"] if item["type"] == "custom_tool_call"]
        num_calls += len(calls)
        for call in calls:
            assert (call["name"], type(call["input"])) == ("edit", str)
            assert call["call_id"]
        done = [e["input"] for e in events if e["type"] == "response.custom_tool_call_input.done"]
        assert done == [call["input"] for call in calls]
        assert not any("function_call" in event["type"] for event in events)
    assert num_calls


def test_the_prompt_contains_earlier_calls_and_results(engine: ChatEngine) -> None:
    """The chat template writes them in the format of the model."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "now", "arguments": '{"z": 1}', "parsed_arguments": {"z": 1}},
    }
    messages = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    body = {"max_tokens": 5, "seed": 1, "temperature": 1.0}
    chat = engine.post(body | {"messages": messages, "tools": [NOW]})
    tool = '{"type": "function", "function": {"name": "now"}}'
    prompt = (
        f"<|im_start|>system\nTools:\n{tool}\n<|im_end|>\n<|im_start|>user\nWhen?<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "now", "arguments": {"z": 1}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>tool\nnoon<|im_end|>\n<|im_start|>assistant\n"
    )
    completion = engine.client.post("/v1/completions", json=body | {"prompt": prompt})
    assert chat.status_code == 200, chat.text
    answer, expected = chat.json(), completion.json()
    assert answer["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]
    assert answer["choices"][0]["message"]["content"] == expected["choices"][0]["text"]


# The field that is wrong, a body with it, and a part of the error message.
INVALID_BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("response_format", {"response_format": {"type": "xml"}},
     "response_format: type xml is not supported by this engine"),
    ("response_format", {"response_format": {"type": "structural_tag", "format": {}}},
     "response_format.format: Extra inputs"),
    ("response_format", {"response_format": {"type": "structural_tag"}},
     "type structural_tag is not supported"),
    ("response_format", {"response_format": {"type": "json_schema"}}, "required"),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {}}},
     "response_format.json_schema.name: Field required"),
    ("response_format", {"response_format": {"type": "text", "schema": {}}}, "only allowed with"),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "uniqueItems"),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": False}}}, "satisfy"),
    ("structured_outputs", {"structured_outputs": {}}, "exactly one"),
    ("structured_outputs", {"structured_outputs": {"whitespace_pattern": " "}}, "exactly one"),
    ("structured_outputs", {"structured_outputs": {"structural_tag": "{}"}},
     "structural_tag is not supported"),
    ("structured_outputs", {"structured_outputs": {"json": {}, "whitespace_pattern": "("}},
     "unclosed group"),
    ("structured_outputs", {"structured_outputs": {"regex": "a", "choice": ["a"]}}, "exactly one"),
    ("structured_outputs", {"structured_outputs": {"json": "{"}}, "not the text"),
    ("structured_outputs", {"structured_outputs": {"json": {"type": "integer", "minimum": 2,
                                                            "maximum": 1}}}, "Unsatisfiable"),
    ("structured_outputs", {"structured_outputs": {"regex": "("}}, "unclosed group"),
    ("structured_outputs", {"structured_outputs": {"regex": "(?=a)b"}}, "look-around"),
    ("structured_outputs", {"structured_outputs": {"choice": []}}, "1 to"),
    ("structured_outputs", {"structured_outputs": {"grammar": "start: nothing"}}, "unknown name"),
    ("structured_outputs", {"structured_outputs": {"guided_json": {}}}, "Extra inputs"),
    ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "pattern"),
    ("tools", {"tools": [NOW, NOW]}, "differ"),
    ("tools", {"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "string"}}}], "tool_choice": "required"}, "type object"),
    ("tool_choice", {"tools": [NOW], "tool_choice": {"type": "function", "function": {
        "name": "f"}}}, "none of the tools"),
    ("tool_choice", {"tools": [NOW], "tool_choice": "maybe"}, "tool_choice"),
    ("tool_choice", {"tool_choice": "required"}, "needs tools"),
    ("messages", {"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "function": {
        "name": "f", "arguments": "[1]"}}]}]}, "JSON object"),
    ("chat_template_kwargs", {"chat_template_kwargs": {"tokenize": True}}, "no variable"),
]  # fmt: skip


@pytest.mark.parametrize(("param", "body", "message"), INVALID_BODIES)
def test_an_invalid_body_is_rejected(
    engine: ChatEngine, param: str, body: dict[str, Any], message: str
) -> None:
    answer = engine.post(body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert message in error["message"], error
    assert error["param"] in (param, None)


def test_tool_choice_auto_needs_a_parser(plain_engine: ChatEngine) -> None:
    answer = plain_engine.post({"tools": [NOW]})
    assert answer.status_code == 400
    assert "--tool-call-parser" in answer.json()["error"]["message"]


def outcomes(engine: ChatEngine) -> dict[str, float]:
    text = engine.client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["penstock:structured_answers"].samples
    return {sample.labels["outcome"]: sample.value for sample in samples}


def test_answers_with_a_grammar_are_counted_by_outcome(plain_engine: ChatEngine) -> None:
    before = outcomes(plain_engine)
    assert plain_engine.ask(structured_outputs={"json": PERSON}, seed=0)["finish_reason"] == "stop"
    body = {"structured_outputs": {"json": PERSON}, "max_tokens": 2}
    assert plain_engine.ask(**body)["finish_reason"] == "length"
    plain_engine.ask(max_tokens=2)
    limits = {"structured_outputs": {"choice": ["ab"]}, "allowed_token_ids": [9]}
    answer = plain_engine.post(limits)
    assert answer.status_code == 400
    assert "the request's own limits" in answer.json()["error"]["message"]
    gained = {name: value - before[name] for name, value in outcomes(plain_engine).items()}
    assert gained == {"complete": 1, "incomplete": 1, "failed": 0}


def test_an_answer_that_reaches_a_limit_of_its_grammar_is_an_error_of_the_engine(
    plain_engine: ChatEngine,
) -> None:
    before = outcomes(plain_engine)["failed"]
    regex = {"structured_outputs": {"regex": "[ab]{90}(.{1,1000}){1,1000}"}, "max_tokens": 900}
    answer = plain_engine.post(regex)
    assert answer.status_code == 500
    assert "states of its grammar" in answer.json()["error"]["message"]
    assert outcomes(plain_engine)["failed"] == before + 1
