"""Tests of the content of messages: the shapes in which clients of each API send texts."""

from typing import Any

import pytest

from penstock_engine.server.requests.bodies import validate
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.routes.messages.request import MessagesRequest
from penstock_engine.server.routes.responses.request import ResponsesRequest
from penstock_engine.server.transport.errors import RequestError

ONLY_TEXT = "is not supported: this model reads text only"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def chat(*messages: dict[str, Any]) -> ChatCompletionRequest:
    return validate(ChatCompletionRequest, {"messages": list(messages)})


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a", ["a"]),
        ("", []),
        (None, []),
        ([], []),
        (["a", "b"], ["a", "b"]),
        ([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], ["a"]),
        ([{"type": "text", "text": ""}], [""]),
        ([{"text": "a"}], ["a"]),
        ([{"type": "input_text", "text": "a"}, "b"], ["a", "b"]),
        ([{"type": "output_text", "text": "a", "annotations": []}], ["a"]),
        ([{"type": "refusal", "refusal": "a"}], ["a"]),
        ([{"type": "thinking", "thinking": "a", "signature": "s"}], ["a"]),
    ],
)
def test_all_shapes_of_text_reach_the_template(content: Any, texts: list[str]) -> None:
    (message,) = chat({"role": "assistant", "content": content}).messages
    parts = [{"type": "text", "text": text} for text in texts]
    assert message.for_template(as_parts=True)["content"] == parts
    assert message.for_template(as_parts=False)["content"] == "\n".join(texts)
    items = validate(ResponsesRequest, {"input": [{"role": "user", "content": content}]})
    assert items.as_chat()["messages"] == [{"role": "user", "content": "".join(texts)}]


@pytest.mark.parametrize(
    ("schema", "body", "message"),
    [
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]},
            f"messages.0.content.1: image_url {ONLY_TEXT}",
        ),
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            f"messages.0.content.0: input_audio {ONLY_TEXT}",
        ),
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages.0.content.0: text must be a text",
        ),
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": [7]}]},
            "messages.0.content.0: must be a text, or an object with a type",
        ),
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": [{"type": ["text"]}]}]},
            "messages.0.content.0: type must be a text",
        ),
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]},
            "messages.0.content: must be a text or a list of parts",
        ),
        (
            MessagesRequest,
            {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]},
            f"messages.0.content.0: image {ONLY_TEXT}",
        ),
        (
            MessagesRequest,
            {"max_tokens": 1, "messages": [{"role": "user", "content": [7]}]},
            "messages.0.content.0: must be an object with a type",
        ),
        (
            MessagesRequest,
            {
                "max_tokens": 1,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}
                        ],
                    }
                ],
            },
            f"messages.0.content.0.tool_result.content.0: image {ONLY_TEXT}",
        ),
        (
            MessagesRequest,
            {"max_tokens": 1, "system": [IMAGE], "messages": [{"role": "user", "content": "a"}]},
            f"system.0: image_url {ONLY_TEXT}",
        ),
        (
            ResponsesRequest,
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            f"input.0.message.content.0: input_image {ONLY_TEXT}",
        ),
        (
            ResponsesRequest,
            {"input": [{"type": "item_reference", "id": "m1"}]},
            "input.0: item_reference is not supported by this engine",
        ),
        (
            ResponsesRequest,
            {"input": []},
            "input: List should have at least 1 item after validation, not 0",
        ),
    ],
)  # fmt: skip
def test_other_parts_are_refused_with_their_place(schema: Any, body: Any, message: str) -> None:
    with pytest.raises(RequestError) as error:
        validate(schema, body)
    assert (error.value.status, error.value.message) == (400, message)


CALL = {"name": "look", "arguments": '{"at": null}'}


@pytest.mark.parametrize(
    ("call", "seen"),
    [
        (
            {"id": "c", "type": "function", "function": CALL},
            {"id": "c", "function": {"name": "look", "arguments": {"at": None}}},
        ),
        (
            {"function": {"name": "look", "arguments": {"at": 1}}},
            {"function": {"name": "look", "arguments": {"at": 1}}},
        ),
        (
            {"id": None, "function": {"name": "look", "arguments": ""}},
            {"function": {"name": "look", "arguments": {}}},
        ),
    ],
)
def test_calls_of_small_clients_are_understood(call: Any, seen: dict[str, Any]) -> None:
    """Some clients leave out the id and the type, or send arguments as an object."""
    asked, answered = chat(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "blue"},
    ).messages
    (made,) = asked.for_template(as_parts=False)["tool_calls"]
    assert made == {"type": "function"} | seen
    assert answered.for_template(as_parts=False) == {"role": "tool", "content": "blue"}


def test_a_tool_without_a_type_is_a_function() -> None:
    body = {
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"function": {"name": "look"}}],
        "tool_choice": {"function": {"name": "look"}},
    }
    request = validate(ChatCompletionRequest, body)
    assert request.tools[0].for_template() == {"type": "function", "function": {"name": "look"}}


def test_arguments_of_a_response_may_be_an_object() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": {"at": 1}}
    body = validate(ResponsesRequest, {"input": [call]}).as_chat()
    (message,) = validate(ChatCompletionRequest, body).messages
    (made,) = message.for_template(as_parts=False)["tool_calls"]
    assert made["function"] == {"name": "look", "arguments": {"at": 1}}
