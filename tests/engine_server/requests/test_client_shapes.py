"""Tests that requests are read in the shapes that SDKs and frameworks of each API send them in."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_engine.server.requests.bodies import parse
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import CompletionRequest, GenerationRequest
from penstock_engine.server.routes.embeddings import EmbeddingsDialect
from penstock_engine.server.routes.messages.answer import MessagesDialect
from penstock_engine.server.routes.messages.request import MessagesRequest
from penstock_engine.server.routes.responses.answer import ResponsesDialect
from penstock_engine.server.routes.responses.request import ResponsesRequest
from penstock_engine.server.transport.errors import RequestError

Json = dict[str, Any]

ASK = [{"role": "user", "content": "hi"}]
FUNCTION = {"name": "f", "description": None, "parameters": {"type": "object"}, "strict": None}
CALL = {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}

# A function that reads a body, and the fields that every body needs.
READERS: dict[str, tuple[Callable[[bytes], GenerationRequest], Json]] = {
    "chat": (lambda raw: parse(ChatCompletionRequest, raw), {"messages": ASK}),
    "completions": (lambda raw: parse(CompletionRequest, raw), {"prompt": "hi"}),
    "embeddings": (lambda raw: EmbeddingsDialect().read(raw, {}), {"input": "hi"}),
    "messages": (lambda raw: MessagesDialect().read(raw, {}), {"max_tokens": 9, "messages": ASK}),
    "responses": (lambda raw: ResponsesDialect("1", 0).read(raw, {}), {"input": "hi"}),
}


def read(api: str, **fields: Any) -> GenerationRequest:
    reader, needed = READERS[api]
    return reader(json.dumps(needed | fields).encode())


def answered(*messages: Json) -> Json:
    return {"messages": [*ASK, *messages]}


TAKEN: list[tuple[str, Json]] = [
    # OpenAI's SDKs, LangChain, LlamaIndex, Vercel's AI SDK: defaults, and what they write for unset fields
    ("chat", {"stream": False, "stream_options": {}}),
    ("chat", {"stream": False, "stream_options": {"include_usage": False}}),
    ("chat", {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}),
    ("chat", {"stream": True, "stream_options": {"include_usage": None}}),
    ("chat", {"stop": [], "logit_bias": {}, "logprobs": False, "top_logprobs": 0, "n": 1}),
    ("chat", {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "auto"}),
    ("chat", {"tools": [], "tool_choice": "none", "parallel_tool_calls": None, "function_call": "auto"}),
    ("chat", {"modalities": ["text"], "store": True, "metadata": {}, "service_tier": "auto", "user": "u"}),
    ("chat", {"prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "medium"}),
    ("chat", {"response_format": {"type": "text"}, "reasoning_effort": "minimal", "seed": 1.0}),
    ("chat", answered({"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None})),
    ("chat", answered({"role": "assistant", "tool_calls": [CALL | {"type": None, "id": None}]})),
    ("chat", answered({"role": "assistant", "content": "a", "tool_calls": [], "annotations": []})),
    ("chat", answered({"role": "assistant", "content": "", "reasoning_details": [], "name": None})),
    ("chat", answered({"role": "function", "name": "f", "content": "x"})),
    ("chat", answered({"role": "developer", "content": [{"type": "text", "text": "x"}]})),
    # a call that an earlier model made up: the client can only send its history back
    ("chat", answered({"role": "assistant", "tool_calls": [{"function": {"name": "no such tool"}}]})),
    ("chat", answered({"role": "assistant", "tool_calls": [{"function": FUNCTION | {"arguments": "null"}}]})),
    # vLLM's, and others' that have no effect
    ("chat", {"top_k": 2**31 - 1, "min_p": 0, "repetition_penalty": 1, "length_penalty": 1}),
    ("chat", {"best_of": 1, "use_beam_search": False, "early_stopping": False, "vllm_xargs": {}}),
    ("completions", {"suffix": "", "best_of": 1, "logprobs": 0, "echo": False, "max_tokens": None}),
    ("completions", {"prompt": [[1, 2], [3]], "user": "u", "stream_options": None}),
    ("completions", {"prompt": ["a"] * 100}),
    ("embeddings", {"input": ["a"] * 2048, "encoding_format": "base64", "user": "u"}),
    ("embeddings", {"input": [[1, 2], [3]], "encoding_format": None, "dimensions": None}),
    # Anthropic's SDKs and Claude Code
    ("messages", {"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]}),
    ("messages", {"system": None, "stream": None, "top_k": None, "stop_sequences": [], "tools": []}),
    ("messages", {"metadata": {"user_id": "u"}, "service_tier": "auto", "mcp_servers": []}),
    ("messages", {"thinking": {"type": "adaptive", "display": "omitted"}, "cache_control": {"type": "x"}}),
    ("messages", {"tools": [{"type": None, "name": "f", "description": None, "input_schema": {}}]}),
    ("messages", answered({"role": "assistant", "content": None})),
    ("messages", answered({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]})),
    (
        "messages",
        answered(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": None}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": None}],
            },
        ),
    ),
    # OpenAI's Responses API, its Agents SDK and Codex
    ("responses", {"truncation": "auto", "store": False, "include": None, "metadata": {}, "prompt": None}),
    ("responses", {"reasoning": {"effort": None, "summary": "auto"}, "text": {"format": {"type": "text"}}}),
    ("responses", {"tools": [{"type": "function"} | FUNCTION], "tool_choice": "auto", "user": "u"}),
    ("responses", {"input": [{"role": "developer", "content": "d"}, *ASK]}),
    (
        "responses",
        {
            "input": [
                {"type": "message", "role": "assistant", "status": None, "phase": None,
                 "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]},
                {"type": "reasoning", "id": "r", "summary": [], "content": None, "encrypted_content": None},
                {"type": "function_call", "id": None, "call_id": "c", "name": "f", "arguments": ""},
                {"type": "function_call_output", "call_id": "c", "output": [{"text": "x"}]},
            ]
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("api", "fields"), TAKEN, ids=str)
def test_shapes_of_common_clients_are_taken(api: str, fields: Json) -> None:
    read(api, **fields)


@pytest.mark.parametrize(
    ("api", "fields", "message"),
    [
        (
            "chat",
            {"stream_options": {"include_usage": True}},
            "stream_options is only allowed with stream: true",
        ),
        ("chat", {"mcp_servers": [{"url": "x"}]}, "mcp_servers is not supported by this engine"),
        (
            "messages",
            {"mcp_servers": [{"url": "x"}]},
            "mcp_servers is not supported by this engine",
        ),
        ("responses", {"max_tokens": 5}, "max_tokens is not a parameter of this route"),
        ("embeddings", {"dimensions": 64}, "dimensions is not supported: the model"),
        (
            "messages",
            {"output_config": {"effort": "some"}},
            "output_config.effort: Input should be",
        ),
        ("chat", {"tool_choice": "any"}, "tool_choice.text: Input should be 'none', 'auto' or"),
        (
            "chat",
            {"tool_choice": {"type": "auto"}},
            "tool_choice.object.type: Input should be 'function'",
        ),
        (
            "responses",
            {"tool_choice": {"type": "auto"}},
            "tool_choice.object.type: Input should be 'function' or 'custom'",
        ),
        (
            "responses",
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": 7}]},
            "input.0.function_call.arguments.object: Input should be a valid dictionary",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused(api: str, fields: Json, message: str) -> None:
    with pytest.raises(RequestError) as error:
        read(api, **fields)
    assert error.value.status == 400
    assert error.value.message.startswith(message)


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    ],
    ids=["output_config", "output_format"],
)
def test_a_message_has_its_output_format_under_both_names(fields: Json) -> None:
    chat = MessagesRequest.model_validate(READERS["messages"][1] | fields).as_chat()
    assert chat["response_format"] == {
        "type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA},
    }  # fmt: skip


def test_effort_and_strict_tools_of_a_message_have_their_effect() -> None:
    tool = {"name": "f", "input_schema": SCHEMA, "strict": True}
    body = {"output_config": {"effort": "low"}, "tools": [tool]}
    chat = MessagesRequest.model_validate(READERS["messages"][1] | body).as_chat()
    assert chat["reasoning_effort"] == "low"
    function = {"name": "f", "parameters": SCHEMA, "strict": True}
    assert chat["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"truncation": "auto"}, -1),
        ({"truncation": "auto", "truncate_prompt_tokens": 5}, 5),
        ({"truncation": "disabled"}, None),
        ({}, None),
    ],
)
def test_automatic_truncation_keeps_what_the_context_has_room_for(
    fields: Json, length: int | None
) -> None:
    chat = ResponsesRequest.model_validate({"input": "hi"} | fields).as_chat()
    assert chat.get("truncate_prompt_tokens") == length
