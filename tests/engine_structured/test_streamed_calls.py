"""Forced tool calls, as clients of a running engine see them: streamed, cut off and stopped."""

import json
from typing import Any

import pytest

ChatEngine = Any  # the class of conftest.py

TEXT = {"enum": ["word " * 40]}
WRITE = {
    "type": "function",
    "function": {
        "name": "write",
        "parameters": {
            "type": "object", "properties": {"text": TEXT}, "required": ["text"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
FORCED: dict[str, Any] = {
    "tools": [WRITE], "tool_choice": "required", "parallel_tool_calls": False, **NO_THINKING
}  # fmt: skip


def events_of(engine: ChatEngine, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = engine.client.post(path, json=body | {"stream": True}).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("is_free", [False, True])
def test_the_arguments_of_a_call_are_streamed_as_they_are_generated(
    engine: ChatEngine, is_free: bool
) -> None:
    body = FORCED
    if is_free:
        arguments = json.dumps({"text": TEXT["enum"][0]})
        text = f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>'
        body = FORCED | {"tool_choice": "auto", "structured_outputs": {"choice": [text]}}
    whole = engine.ask(**body)
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "text": TEXT["enum"][0]
    }
    engine.assert_stream_equals(whole, **body)
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 400} | body
    deltas = [
        call
        for event in events_of(engine, "/v1/chat/completions", chat)
        for call in event["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert deltas[0]["function"]["name"] == "write"
    assert deltas[0]["type"] == "function"
    assert len(deltas) > 5


def test_arguments_are_streamed_in_messages_and_responses(plain_engine: ChatEngine) -> None:
    function = WRITE["function"]
    assert isinstance(function, dict)
    body = {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 400,
        "tools": [{"name": "write", "input_schema": function["parameters"]}],
        "tool_choice": {"type": "tool", "name": "write"},
    }  # fmt: skip
    deltas = [e.get("delta", {}) for e in events_of(plain_engine, "/v1/messages", body)]
    pieces = [d["partial_json"] for d in deltas if d.get("type") == "input_json_delta"]
    assert json.loads("".join(pieces)) == {"text": TEXT["enum"][0]}
    assert len(pieces) > 5
    body = {
        "input": "x", "max_output_tokens": 400, "tools": [{"type": "function"} | function],
        "tool_choice": "required", "parallel_tool_calls": False,
    }  # fmt: skip
    events = events_of(plain_engine, "/v1/responses", body)
    pieces = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e["type"] == "response.function_call_arguments.done"]
    assert "".join(pieces) == done["arguments"]
    assert json.loads(done["arguments"]) == {"text": TEXT["enum"][0]}
    assert len(pieces) > 5


@pytest.mark.parametrize("max_tokens", [1, 8, 40])
@pytest.mark.parametrize("tool_choice", ["required", WRITE])
def test_a_forced_call_that_is_cut_off_is_a_partial_call(
    engine: ChatEngine, tool_choice: Any, max_tokens: int
) -> None:
    body = FORCED | {"tool_choice": tool_choice, "max_tokens": max_tokens}
    choice = engine.ask(**body)
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "write"
    whole = json.dumps({"text": TEXT["enum"][0]})
    arguments = "".join(call["function"]["arguments"].split())
    assert "".join(whole.split()).startswith(arguments)
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "length"
    engine.assert_stream_equals(choice, **body)


def test_a_response_with_a_call_that_is_cut_off_is_incomplete(plain_engine: ChatEngine) -> None:
    body = {
        "input": "x", "max_output_tokens": 40, "tools": [{"type": "function"} | WRITE["function"]],  # type: ignore[operator]
        "tool_choice": "required",
    }  # fmt: skip
    answer = plain_engine.client.post("/v1/responses", json=body).json()
    assert [(i["type"], i["status"]) for i in answer["output"]] == [("function_call", "incomplete")]


@pytest.mark.parametrize("stop", ["\n", "<tool", "name", '{"'])
def test_stop_strings_have_no_effect_on_the_opening_of_a_forced_call(
    engine: ChatEngine, stop: str
) -> None:
    choice = engine.ask(**FORCED, stop=[stop])
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "write"
    assert choice["message"]["content"] is None
    if stop in ("<tool", "name"):
        assert json.loads(call["function"]["arguments"]) == {"text": TEXT["enum"][0]}


def test_a_stop_string_ends_the_arguments_of_a_forced_call(engine: ChatEngine) -> None:
    choice = engine.ask(**FORCED, stop=["ord word"])
    arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert arguments.endswith('"w')
    assert choice["stop_reason"] == "ord word"
