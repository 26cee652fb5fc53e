from typing import Any

import httpx
import pytest

CHAT = [{"role": "user", "content": "What is a penstock?"}]


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_text_there_and_back(client: httpx.Client) -> None:
    there = post(client, "/tokenize", model="soup", prompt="The gateway, l'été")
    back = post(client, "/detokenize", tokens=there["tokens"])
    assert there["count"] == len(there["tokens"]) > 3
    assert (there["max_model_len"], there["token_strs"]) == (2048, None)
    assert back == {"prompt": "The gateway, l'été"}


def test_the_words_of_the_vocabulary(client: httpx.Client) -> None:
    answer = post(client, "/tokenize", prompt="a b", return_token_strs=True)
    assert "".join(answer["token_strs"]) == "aĠb"


def test_a_chat_has_the_tokens_that_are_charged_for(client: httpx.Client) -> None:
    counted = post(client, "/tokenize", messages=CHAT)
    messages = {"messages": CHAT, "max_tokens": 1}
    charged = post(client, "/v1/chat/completions", **messages)["usage"]["prompt_tokens"]
    anthropic = post(client, "/v1/messages/count_tokens", model="soup", messages=CHAT)
    assert counted["count"] == charged == anthropic["input_tokens"]


def test_what_the_prompt_is_made_from_is_counted(client: httpx.Client) -> None:
    plain = post(client, "/tokenize", messages=CHAT)["count"]
    open_end = post(client, "/tokenize", messages=CHAT, add_generation_prompt=False)["count"]
    body = {"messages": CHAT, "truncate_prompt_tokens": -1, "max_tokens": 2046}
    assert open_end < plain
    assert post(client, "/tokenize", **body)["count"] == 2


def test_a_count_takes_what_clients_send_with_a_prompt(client: httpx.Client) -> None:
    path = "/v1/messages/count_tokens"
    effort = {"output_config": {"effort": "low"}, "metadata": {"user_id": "u"}, "stream": False}
    plain, told = (post(client, path, messages=CHAT, **extra) for extra in ({}, effort))
    assert plain == told


def test_special_tokens_are_text_again(client: httpx.Client) -> None:
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
def test_refused(client: httpx.Client, path: str, body: dict[str, Any], status: int) -> None:
    assert client.post(path, json=body).status_code == status


def test_no_token_is_no_text(client: httpx.Client) -> None:
    assert post(client, "/detokenize", tokens=[]) == {"prompt": ""}
    assert post(client, "/tokenize", prompt="")["tokens"] == []


def test_load_counts_nobody_when_nobody_is_there(client: httpx.Client) -> None:
    assert client.get("/load").json() == {"server_load": 0}
