"""Tests of /v1/messages: Anthropic's requests to chat requests, and chat answers to Anthropic's."""

import json
from typing import Any

import httpx
import pytest

from penstock_engine.contract.wire import SSE_DONE
from penstock_engine.server.routes.messages.answer import MessagesDialect
from penstock_engine.server.routes.messages.request import MessagesRequest

BODY: dict[str, Any] = {
    "model": "soup",
    "max_tokens": 12,
    "messages": [{"role": "user", "content": "What is a penstock?"}],
    "temperature": 0,
}


def events_of(text: str) -> list[dict[str, Any]]:
    """Returns the data of each event. The event's name must be its type."""
    bodies = []
    for event in text.strip().split("\n\n"):
        name, data = event.split("\n")
        bodies.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + bodies[-1]["type"]
    return bodies


def test_a_message_has_the_answer_of_the_same_chat(client: httpx.Client) -> None:
    message = client.post("/v1/messages", json=BODY).json()
    chat = client.post("/v1/chat/completions", json=BODY).json()
    choice = chat["choices"][0]
    assert message["content"] == [{"type": "text", "text": choice["message"]["content"]}]
    assert (
        message["stop_reason"]
        == {"length": "max_tokens", "stop": "end_turn"}[choice["finish_reason"]]
    )
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "soup")
    usage = message["usage"]
    assert usage["output_tokens"] == chat["usage"]["completion_tokens"]
    assert (
        usage["input_tokens"] + usage["cache_read_input_tokens"] == (chat["usage"]["prompt_tokens"])
    )


def test_a_streamed_message_equals_the_whole_one(client: httpx.Client) -> None:
    whole = client.post("/v1/messages", json=BODY).json()
    answer = client.post("/v1/messages", json=BODY | {"stream": True})
    events = events_of(answer.text)

    assert answer.headers["content-type"].startswith("text/event-stream")
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    first = events[0]["message"]["usage"]
    assert first["input_tokens"] + first["cache_read_input_tokens"] == sum(
        whole["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")
    )
    assert first["output_tokens"] == 0
    text = "".join(event["delta"]["text"] for event in events[2:-3])
    assert [{"type": "text", "text": text}] == whole["content"]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_the_answer_has_the_stop_sequence_that_ended_it(client: httpx.Client) -> None:
    full = client.post("/v1/messages", json=BODY).json()["content"][0]["text"]
    body = BODY | {"stop_sequences": ["never said", full[4:7]]}
    message = client.post("/v1/messages", json=body).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", full[4:7])


@pytest.mark.parametrize(
    ("change", "status", "kind"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error"),
        ({"max_tokens": 0}, 400, "invalid_request_error"),
        ({"max_tokens": 10**6}, 400, "invalid_request_error"),
        ({"model": "other"}, 404, "not_found_error"),
        ({"messages": []}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400,
         "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400,
         "invalid_request_error"),
        ({"tool_choice": {"type": "tool"}}, 400, "invalid_request_error"),
        ({"temperature": 1000}, 400, "invalid_request_error"),
    ],
)  # fmt: skip
def test_errors_have_anthropics_format(
    client: httpx.Client, change: dict[str, Any], status: int, kind: str
) -> None:
    answer = client.post("/v1/messages", json=BODY | change)
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == kind


TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


def test_a_conversation_with_tools_becomes_a_chat_request() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look "}, {"type": "text", "text": "up"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sky"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "blue"}]},
            {"type": "text", "text": "So?"},
        ]},
    ]  # fmt: skip
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    body = BODY | {
        "messages": messages, "system": system, "tools": [TOOL],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }  # fmt: skip
    chat = MessagesRequest.model_validate(body).as_chat()
    assert chat["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look up"},
        {
            "role": "assistant", "content": "I look.", "reasoning": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function",
                 "function": {"name": "look", "arguments": '{"at": "sky"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "blue"},
        {"role": "user", "content": "So?"},
    ]  # fmt: skip
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert (chat["tool_choice"], chat["parallel_tool_calls"]) == ("required", False)


@pytest.mark.parametrize(
    ("thinking", "budget"),
    [
        ({"type": "enabled", "budget_tokens": 3}, 3),
        ({"type": "adaptive"}, None),
        ({"type": "disabled"}, None),
    ],
)
def test_thinking_becomes_a_thinking_token_budget(
    thinking: dict[str, Any], budget: int | None
) -> None:
    body = BODY | {"max_tokens": 4, "thinking": thinking}
    chat = MessagesRequest.model_validate(body).as_chat()
    assert chat["thinking_token_budget"] == budget


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])  # the latter after a call that was named
def test_reasoning_text_and_calls_become_content_blocks(reason: str) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    message = {"reasoning": "hm", "content": "I look.", "tool_calls": [call]}
    usage = {"prompt_tokens": 9, "completion_tokens": 5}
    choice = {"message": message, "finish_reason": reason}
    answer = MessagesDialect().whole(
        {"id": "chatcmpl-1", "model": "m", "choices": [choice], "usage": usage}
    )
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
    ]
    assert (answer["id"], answer["stop_reason"]) == ("msg_1", "tool_use")


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
async def test_streamed_blocks_start_and_stop_in_order(reason: str) -> None:
    def call(index: int, arguments: str, **more: str) -> dict[str, Any]:
        function = {"arguments": arguments} | ({"name": more["name"]} if more else {})
        return {"index": index, "function": function} | ({"id": more["id"]} if more else {})

    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"reasoning": "h"},
        {"reasoning": "m"},
        {"content": "I look."},
        {"tool_calls": [call(0, "", id="t1", name="look")]},
        {"tool_calls": [call(0, '{"at"')]},
        {"tool_calls": [call(0, ": 1}"), call(1, "{}", id="t2", name="see")]},
    ]
    chunks = [{"id": "chatcmpl-1", "choices": [{"index": 0, "delta": d}]} for d in deltas]
    chunks += [
        {"id": "chatcmpl-1", "choices": [{"delta": {}, "finish_reason": reason}]},
        {"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}},
    ]

    async def stream() -> Any:
        for chunk in chunks:
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
        yield SSE_DONE

    text = b"".join([event async for event in MessagesDialect().events(stream())])
    summary = [
        (event["type"], event.get("index"), event.get("content_block") or event.get("delta"))
        for event in events_of(text.decode())
    ]
    assert summary[1:-2] == [
        ("content_block_start", 0, {"type": "thinking", "thinking": "", "signature": ""}),
        ("content_block_delta", 0, {"type": "thinking_delta", "thinking": "h"}),
        ("content_block_delta", 0, {"type": "thinking_delta", "thinking": "m"}),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, {"type": "text", "text": ""}),
        ("content_block_delta", 1, {"type": "text_delta", "text": "I look."}),
        ("content_block_stop", 1, None),
        ("content_block_start", 2, {"type": "tool_use", "id": "t1", "name": "look", "input": {}}),
        ("content_block_delta", 2, {"type": "input_json_delta", "partial_json": '{"at"'}),
        ("content_block_delta", 2, {"type": "input_json_delta", "partial_json": ": 1}"}),
        ("content_block_stop", 2, None),
        ("content_block_start", 3, {"type": "tool_use", "id": "t2", "name": "see", "input": {}}),
        ("content_block_delta", 3, {"type": "input_json_delta", "partial_json": "{}"}),
        ("content_block_stop", 3, None),
    ]
    assert summary[-2][2] == {"stop_reason": "tool_use", "stop_sequence": None}


async def test_a_stream_that_breaks_ends_with_an_error() -> None:
    async def stream() -> Any:
        yield b'data: {"id": "1", "choices": [{"delta": {"content": "x"}}]}\n\n'
        yield b'data: {"error": {"message": "stopping", "code": 503}}\n\n'
        yield SSE_DONE

    text = b"".join([event async for event in MessagesDialect().events(stream())])
    assert events_of(text.decode())[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "stopping"},
    }
