"""Tests of /v1/chat/completions/batch: one answer per conversation."""

from typing import Any

import httpx
import pytest

CHATS = [
    [{"role": "user", "content": "What is a penstock?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is an engine?"}],
    [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}],
]
GREEDY = {"model": "soup", "temperature": 0, "max_tokens": 8}


def test_each_choice_is_the_answer_to_its_conversation(client: httpx.Client) -> None:
    batch = client.post("/v1/chat/completions/batch", json=GREEDY | {"messages": CHATS})
    assert batch.status_code == 200, batch.text
    alone = [
        client.post("/v1/chat/completions", json=GREEDY | {"messages": chat}).json()
        for chat in CHATS
    ]
    choices = batch.json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert [choice["message"] for choice in choices] == [
        answer["choices"][0]["message"] for answer in alone
    ]
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert batch.json()["usage"][count] == sum(answer["usage"][count] for answer in alone)
    assert batch.json()["object"] == "chat.completion"


def test_each_choice_has_its_own_token_ids(client: httpx.Client) -> None:
    body = GREEDY | {
        "messages": CHATS,
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 1,
    }
    batch = client.post("/v1/chat/completions/batch", json=body).json()
    assert batch["prompt_token_ids"] is None
    for choice in batch["choices"]:
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, "tools"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"echo": True}, "echo"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [[]]}, "messages"),
        ({"messages": CHATS[0]}, "messages"),
        ({"messages": [CHATS[0], [{"content": "no role"}]]}, "messages"),
        ({"messages": CHATS * 40}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"model": "other"}, "model"),
    ],
)
def test_invalid_batches_are_rejected(
    client: httpx.Client, change: dict[str, Any], param: str
) -> None:
    answer = client.post("/v1/chat/completions/batch", json=GREEDY | {"messages": CHATS} | change)
    assert answer.status_code == (404 if param == "model" else 400)
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("neutral", [{"stream": False}, {"n": 1}, {"tools": None}, {"echo": False}])
def test_parameters_without_effect_are_accepted(
    client: httpx.Client, neutral: dict[str, Any]
) -> None:
    body = GREEDY | {"messages": CHATS[:1]} | neutral
    assert client.post("/v1/chat/completions/batch", json=body).status_code == 200
