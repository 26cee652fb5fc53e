"""Tests of the request schemas: vLLM's parameters, neutral values, types and limits."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock_engine.server.requests.bodies import IGNORED, NEUTRAL, parse
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import CompletionRequest, GenerationRequest
from penstock_engine.server.transport.errors import RequestError

FIELDS = json.loads((Path(__file__).parents[2] / "golden" / "vllm-0.32-http.json").read_text())[
    "request_and_response_fields"
]

Schema = type[GenerationRequest]


def body(schema: Schema, **extra: Any) -> bytes:
    own = (
        {"prompt": "x"}
        if schema is CompletionRequest
        else {"messages": [{"role": "user", "content": "x"}]}
    )
    return json.dumps(own | extra).encode()


@pytest.mark.parametrize("schema", [CompletionRequest, ChatCompletionRequest])
def test_all_parameters_of_vllm_are_known(schema: Schema) -> None:
    known = schema.model_fields.keys() | NEUTRAL.keys() | IGNORED
    assert set(FIELDS[schema.__name__]) - known == set()


def test_no_parameter_is_in_two_lists() -> None:
    fields = CompletionRequest.model_fields.keys() | ChatCompletionRequest.model_fields.keys()
    assert fields & NEUTRAL.keys() == fields & IGNORED == IGNORED & NEUTRAL.keys()


@pytest.mark.parametrize("name", NEUTRAL)
def test_an_unsupported_parameter_is_rejected_by_name(name: str) -> None:
    for value in (12345, "something", {"a": 1}, [1]):
        with pytest.raises(RequestError) as error:
            parse(CompletionRequest, body(CompletionRequest, **{name: value}))
        assert (error.value.status, error.value.param) == (400, name)


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_values_are_accepted(name: str) -> None:
    for value in (None, *NEUTRAL[name]):
        parse(ChatCompletionRequest, body(ChatCompletionRequest, **{name: value}))


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_parameters_are_accepted(name: str) -> None:
    parse(ChatCompletionRequest, body(ChatCompletionRequest, **{name: "anything"}))


def test_null_means_the_default() -> None:
    names = CompletionRequest.model_fields.keys() - {"prompt"}
    request = parse(CompletionRequest, body(CompletionRequest, **dict.fromkeys(names)))
    assert request == parse(CompletionRequest, body(CompletionRequest))


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [1]], ["a", [1]]),
    ],
)
def test_a_prompt_becomes_a_list_of_prompts(prompt: Any, prompts: Any) -> None:
    assert parse(CompletionRequest, body(CompletionRequest, prompt=prompt)).prompt == prompts


def test_max_completion_tokens_overrides_max_tokens() -> None:
    request = parse(ChatCompletionRequest, body(ChatCompletionRequest, max_tokens=5))
    assert request.requested_max_tokens == 5
    both = body(ChatCompletionRequest, max_tokens=5, max_completion_tokens=6)
    assert parse(ChatCompletionRequest, both).requested_max_tokens == 6
    assert parse(ChatCompletionRequest, body(ChatCompletionRequest)).requested_max_tokens is None
    assert parse(CompletionRequest, body(CompletionRequest)).requested_max_tokens == 16


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_tokens": "5"}, 5),
        ({"max_tokens": 5.0}, 5),
        ({"temperature": "0.5"}, 0.5),
        ({"ignore_eos": "true"}, True),
        ({"stream": 1}, True),
        ({"stop_token_ids": ["7"]}, [7]),
    ],
)
def test_values_are_converted_like_vllms(given: dict[str, Any], expected: Any) -> None:
    request = parse(CompletionRequest, body(CompletionRequest, **given))
    assert getattr(request, next(iter(given))) == expected


def test_unknown_parameters_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    extra = {"max_token": 3, "enable_magic": {"a": [1]}}
    with caplog.at_level("DEBUG"):
        request = parse(CompletionRequest, body(CompletionRequest, **extra))
    assert request == parse(CompletionRequest, body(CompletionRequest))
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert "max_token" in caplog.text
    assert "enable_magic" in caplog.text


def test_unknown_fields_of_messages_and_parts_are_ignored() -> None:
    parts = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
    message = {"role": "user", "content": parts, "annotations": [1], "refusal": None}
    request = parse(ChatCompletionRequest, body(ChatCompletionRequest, messages=[message]))
    assert request.messages[0].for_template(as_parts=False) == {"role": "user", "content": "x"}
