"""A tour of /v1/messages with Anthropic's own client."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

ASK: list[Any] = [{"role": "user", "content": "What is a penstock?"}]
TOOL: Any = {
    "name": "look",
    "description": "Looks at something.",
    "input_schema": {
        "type": "object",
        "properties": {"at": {"enum": ["sky", "sea"]}},
        "required": ["at"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key=server.key, max_retries=0) as client:
        yield client


def test_a_message_whole_and_streamed(client: Anthropic) -> None:
    settings: dict[str, Any] = {
        "model": "soup", "max_tokens": 8, "messages": ASK, "system": "Be brief.",
        "extra_body": {"temperature": 0},
    }  # fmt: skip
    whole = client.messages.create(**settings)
    with client.messages.stream(**settings) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert whole.content[0].text == text
    assert [block.type for block in final.content] == ["text"]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_tokens_are_counted(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="soup", messages=ASK).input_tokens
    usage = client.messages.create(model="soup", max_tokens=1, messages=ASK).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_a_tool_is_called_and_answered(client: Anthropic) -> None:
    settings: dict[str, Any] = {
        "model": "soup", "max_tokens": 800, "tools": [TOOL],
        "tool_choice": {"type": "tool", "name": "look"},
    }  # fmt: skip
    first = client.messages.create(messages=ASK, **settings)
    (call,) = [block for block in first.content if block.type == "tool_use"]
    with client.messages.stream(messages=ASK, **settings) as stream:
        streamed = stream.get_final_message()
    assert call.input["at"] in ("sky", "sea")
    assert [block.type for block in streamed.content] == ["tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "blue"}
    told = [
        *ASK, {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]  # fmt: skip
    after = client.messages.create(
        model="soup", max_tokens=8, tools=[TOOL], tool_choice={"type": "none"}, messages=told
    )
    assert after.role == "assistant"


def test_errors_are_the_clients_own(client: Anthropic, server: Any) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="other", max_tokens=1, messages=ASK)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="soup", max_tokens=5000, messages=ASK)
    with (
        Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(model="soup", max_tokens=1, messages=ASK)
