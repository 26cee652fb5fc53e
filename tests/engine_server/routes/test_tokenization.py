"""Tests of /tokenize, /detokenize, /v1/messages/count_tokens and /load."""

from typing import Any

import httpx
import pytest

CHAT = [{"role": "user", "content": "What is a penstock?"}]


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_detokenize_reverts_tokenize(client: httpx.Client) -> None:
    tokenized = post(client, "/tokenize", model="soup", prompt="The gateway, l'été")
    text = post(client, "/detokenize", tokens=tokenized["tokens"])
    assert tokenized["count"] == len(tokenized["tokens"]) > 3
    assert (tokenized["max_model_len"], tokenized["token_strs"]) == (2048, None)
    assert text == {"prompt": "The gateway, l'été"}


def test_token_strs_are_the_words_of_the_vocabulary(client: httpx.Client) -> None:
    answer = post(client, "/tokenize", prompt="a b", return_token_strs=True)
    assert "".join(answer["token_strs"]) == "aĠb"


def test_token_counts_equal_those_of_usage(client: httpx.Client) -> None:
    counted = post(client, "/tokenize", messages=CHAT)
    messages = {"messages": CHAT, "max_tokens": 1}
    charged = post(client, "/v1/chat/completions", **messages)["usage"]["prompt_tokens"]
    anthropic = post(client, "/v1/messages/count_tokens", model="soup", messages=CHAT)
    assert counted["count"] == charged == anthropic["input_tokens"]


def test_parameters_that_affect_the_prompt_are_accepted(client: httpx.Client) -> None:
    plain = post(client, "/tokenize", messages=CHAT)["count"]
    open_end = post(client, "/tokenize", messages=CHAT, add_generation_prompt=False)["count"]
    body = {"messages": CHAT, "truncate_prompt_tokens": -1, "max_tokens": 2046}
    assert open_end < plain
    assert post(client, "/tokenize", **body)["count"] == 2


def test_count_tokens_accepts_parameters_without_effect(client: httpx.Client) -> None:
    path = "/v1/messages/count_tokens"
    effort = {"output_config": {"effort": "low"}, "metadata": {"user_id": "u"}, "stream": False}
    plain, extended = (post(client, path, messages=CHAT, **extra) for extra in ({}, effort))
    assert plain == extended


def test_detokenize_keeps_special_tokens(client: httpx.Client) -> None:
    ids = post(client, "/tokenize", messages=CHAT)["tokens"]
    assert post(client, "/detokenize", tokens=ids)["prompt"].startswith("<|im_start|>user\n")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": ["a"]}, 400),
        ("/tokenize", {"prompt": "x" * 1_000_000}, 400),
        ("/tokenize", {"prompt": "x", "model": "other"}, 404),
        ("/tokenize", {"messages": []}, 400),
        ("/tokenize", {"messages": CHAT, "prompt": "x"}, 400),
        ("/tokenize", {"messages": [{"role": "<wizard>", "content": "x"}]}, 400),
        ("/detokenize", {}, 400),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": [10**9]}, 400),
        ("/detokenize", {"tokens": "12"}, 400),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404),
        ("/v1/messages/count_tokens", {"model": "soup", "messages": []}, 400),
    ],
)
def test_invalid_requests_are_rejected(
    client: httpx.Client, path: str, body: dict[str, Any], status: int
) -> None:
    assert client.post(path, json=body).status_code == status


def test_the_empty_text_has_no_tokens(client: httpx.Client) -> None:
    assert post(client, "/detokenize", tokens=[]) == {"prompt": ""}
    assert post(client, "/tokenize", prompt="")["tokens"] == []


def test_load_is_zero_without_requests(client: httpx.Client) -> None:
    assert client.get("/load").json() == {"server_load": 0}
