"""Reasoning and its token budget, as clients of a running engine see them."""

import json
from typing import Any

import pytest

ChatEngine = Any  # the class of conftest.py

USER = {"role": "user", "content": "Say something."}
REASONING = {"role": "assistant", "content": "<think>The water"}
CONTINUE_REASONING: dict[str, Any] = {
    "messages": [USER, REASONING],
    "continue_final_message": True, "max_tokens": 40, "ignore_eos": True,
}  # fmt: skip
RESPONSE_INPUT = [USER, REASONING | {"status": "in_progress"}]


def test_reasoning_may_precede_structured_output(engine: ChatEngine) -> None:
    """The grammar allows reasoning first but does not require it."""
    body = {"structured_outputs": {"choice": ["yes"]}, "max_tokens": 300}
    choice = engine.ask(**body)
    if choice["finish_reason"] == "stop":
        assert choice["message"]["content"] == "yes"
    engine.assert_stream_equals(choice, **body)


def usage_of_stream(engine: ChatEngine, path: str, body: dict[str, Any]) -> Any:
    """Returns the last usage of a stream."""
    text = engine.client.post(path, json=body | {"stream": True}).text
    bodies = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    usages = [event.get("response", event).get("usage") for event in bodies]
    return [usage for usage in usages if usage is not None][-1]


def test_usage_has_the_number_of_reasoning_tokens(engine: ChatEngine) -> None:
    """If a message is continued within its reasoning, all new tokens are reasoning tokens."""
    path, body = "/v1/chat/completions", CONTINUE_REASONING | {"max_tokens": 12, "seed": 3}
    whole = engine.client.post(path, json=body).json()["usage"]
    streamed = usage_of_stream(engine, path, body | {"stream_options": {"include_usage": True}})
    assert whole["completion_tokens_details"] == {"reasoning_tokens": 12}
    assert streamed["completion_tokens_details"] == {"reasoning_tokens": 12}
    no_thinking = {"chat_template_kwargs": {"enable_thinking": False}}
    usage = engine.client.post(path, json=body | no_thinking).json()["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_a_response_has_the_number_of_reasoning_tokens(engine: ChatEngine) -> None:
    body = {"input": RESPONSE_INPUT, "max_output_tokens": 12, "ignore_eos": True, "seed": 3}
    whole = engine.client.post("/v1/responses", json=body).json()["usage"]
    streamed = usage_of_stream(engine, "/v1/responses", body)
    assert whole["output_tokens_details"] == {"reasoning_tokens": 12}
    assert streamed["output_tokens_details"] == {"reasoning_tokens": 12}


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_reasoning_ends_when_its_budget_is_spent(engine: ChatEngine, budget: int) -> None:
    body = CONTINUE_REASONING | {"thinking_token_budget": budget}
    answer = engine.post(body).json()
    details = answer["usage"]["completion_tokens_details"]
    message = answer["choices"][0]["message"]
    assert details == {"reasoning_tokens": budget}
    assert message["content"]
    assert bool(message["reasoning"]) == bool(budget)
    engine.assert_stream_equals(answer["choices"][0], **body)


def test_a_budget_that_is_not_spent_has_no_effect(engine: ChatEngine) -> None:
    without = engine.ask(**CONTINUE_REASONING)
    assert without["message"]["content"] is None
    for budget in (-1, 41, None):
        assert engine.ask(**CONTINUE_REASONING | {"thinking_token_budget": budget}) == without


def test_structured_output_follows_reasoning_with_a_budget(engine: ChatEngine) -> None:
    parameters = {"structured_outputs": {"choice": ["yes"]}, "thinking_token_budget": 5}
    for seed in range(4):
        choice = engine.ask(**CONTINUE_REASONING | parameters | {"seed": seed, "max_tokens": 60})
        assert (choice["message"]["content"], choice["finish_reason"]) == ("yes", "stop")


def test_completions_and_responses_have_budgets(engine: ChatEngine) -> None:
    body = {"prompt": "<think>The water", "max_tokens": 30, "ignore_eos": True, "seed": 3}
    text = engine.client.post("/v1/completions", json=body | {"thinking_token_budget": 4}).json()
    assert text["choices"][0]["text"].count("</think>") == 1
    assert "completion_tokens_details" not in text["usage"]  # completions are not parsed
    body = {"input": RESPONSE_INPUT, "max_output_tokens": 30, "ignore_eos": True, "seed": 3}
    response = engine.client.post("/v1/responses", json=body | {"thinking_token_budget": 4}).json()
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 4}
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "enabled"},
        {"type": "enabled", "budget_tokens": 0},
        {"type": "enabled", "budget_tokens": 30},
        {"type": "disabled", "budget_tokens": 5},
        {"type": "deep"},
    ],
)
def test_an_invalid_thinking_field_of_a_message_is_rejected(
    engine: ChatEngine, thinking: Any
) -> None:
    body = {"messages": [USER], "max_tokens": 30, "thinking": thinking}
    answer = engine.client.post("/v1/messages", json=body)
    assert (answer.status_code, "thinking" in answer.text) == (400, True)


@pytest.mark.parametrize("budget", [-2, 1.5, True, "3"])
def test_an_invalid_budget_is_rejected(engine: ChatEngine, budget: Any) -> None:
    body = {"thinking_token_budget": budget}
    answer = engine.post(body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "thinking_token_budget"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [USER]}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/responses", {"input": "a"}),
    ],
)
def test_a_budget_needs_a_reasoning_parser(
    plain_engine: ChatEngine, path: str, body: dict[str, Any]
) -> None:
    error = plain_engine.client.post(path, json=body | {"thinking_token_budget": 5}).json()["error"]
    assert (error["code"], error["param"]) == (400, "thinking_token_budget")
    assert "--reasoning-parser" in error["message"]


def test_thinking_of_a_message_needs_a_reasoning_parser(plain_engine: ChatEngine) -> None:
    body = {"messages": [USER], "max_tokens": 30}
    for kind in ("adaptive", "disabled"):
        answer = plain_engine.client.post("/v1/messages", json=body | {"thinking": {"type": kind}})
        assert answer.status_code == 200
    enabled = {"thinking": {"type": "enabled", "budget_tokens": 5}}
    answer = plain_engine.client.post("/v1/messages", json=body | enabled)
    assert (answer.status_code, "--reasoning-parser" in answer.text) == (400, True)
