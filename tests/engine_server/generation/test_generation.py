"""Tests of answers of a running engine: streams, stop strings, seeds, usage, request ids."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 24, "ignore_eos": True}
CHAT = [{"role": "user", "content": "What is a penstock?"}]


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the JSON of each event of a stream but the last, which must be [DONE]."""
    with client.stream("POST", path, json=body | {"stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def complete(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json=SAMPLED | body)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["text"]
    return text


def test_the_model_is_listed(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("soup", "model", 2048)


@pytest.mark.parametrize("extra", [{}, {"temperature": 0}, {"skip_special_tokens": False}])
def test_a_streamed_chat_equals_the_whole_one(client: httpx.Client, extra: dict[str, Any]) -> None:
    body = SAMPLED | {"messages": CHAT, "model": "soup"} | extra
    whole = client.post("/v1/chat/completions", json=body).json()
    chunks = events(
        client, "/v1/chat/completions", body | {"stream_options": {"include_usage": True}}
    )

    choice = whole["choices"][0]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in deltas) == choice["message"]["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == choice["finish_reason"] == "length"
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 24
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_streamed_completion_equals_the_whole_one(client: httpx.Client) -> None:
    body = SAMPLED | {"prompt": "The gateway"}
    chunks = events(client, "/v1/completions", body)
    assert "".join(c["choices"][0]["text"] for c in chunks) == text_of(complete(client, **body))
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("extra", [{}, {"return_token_ids": True}, {"n": 2}])
def test_a_stream_with_echo_begins_with_the_prompt(
    client: httpx.Client, extra: dict[str, Any]
) -> None:
    prompts = ["The gateway", "A very long queue"]
    body = SAMPLED | {"prompt": prompts, "echo": True} | extra
    whole = complete(client, **body)["choices"]
    chunks = events(client, "/v1/completions", body)
    for choice in whole:
        parts = [e for chunk in chunks for e in chunk["choices"] if e["index"] == choice["index"]]
        prompt = prompts[choice["index"] * len(prompts) // len(whole)]
        assert parts[0]["text"].startswith(prompt)
        assert "".join(e["text"] for e in parts) == choice["text"]
        assert [t for e in parts for t in e["token_ids"] or ()] == (choice["token_ids"] or [])


def test_continuous_usage_stats_are_in_every_chunk(client: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = SAMPLED | {"prompt": "The gateway", "max_tokens": 3, "stream_options": options}
    counts = [c["usage"]["completion_tokens"] for c in events(client, "/v1/completions", body)]
    assert counts[-1] == 3
    assert counts == sorted(counts)
    body = SAMPLED | {"messages": CHAT, "max_tokens": 3, "stream_options": options}
    first, *_, last = events(client, "/v1/chat/completions", body)
    assert (first["choices"][0]["delta"], first["usage"]["completion_tokens"]) == (
        {"role": "assistant", "content": ""}, 0,
    )  # fmt: skip
    assert first["usage"]["prompt_tokens"] == first["usage"]["total_tokens"] > 0
    assert last["usage"]["completion_tokens"] == 3


def test_token_ids_are_null_unless_requested(client: httpx.Client) -> None:
    answers = [
        complete(client, prompt="The"),
        client.post("/v1/chat/completions", json=SAMPLED | {"messages": CHAT}).json(),
    ]
    for answer in answers:
        assert answer["choices"][0]["token_ids"] is None
    assert answers[0]["choices"][0]["prompt_token_ids"] is None
    assert answers[1]["prompt_token_ids"] is None
    for chunk in events(client, "/v1/completions", SAMPLED | {"prompt": "The"}):
        (choice,) = chunk["choices"]
        assert (choice["token_ids"], choice["prompt_token_ids"]) == (None, None)


def test_a_stream_begins_with_the_tokens_of_its_prompt(client: httpx.Client) -> None:
    body = SAMPLED | {"return_token_ids": True}
    tokens = complete(client, prompt="The gateway", return_token_ids=True)["choices"][0]
    chunks = events(client, "/v1/completions", body | {"prompt": "The gateway"})
    choices = [chunk["choices"][0] for chunk in chunks]
    prompts = [choice["prompt_token_ids"] for choice in choices[:2]]
    assert prompts == [tokens["prompt_token_ids"], None]
    assert [id_ for choice in choices for id_ in choice["token_ids"]] == tokens["token_ids"]
    chat = client.post("/v1/chat/completions", json=body | {"messages": CHAT}).json()
    chunks = events(client, "/v1/chat/completions", body | {"messages": CHAT})
    assert chunks[0]["prompt_token_ids"] == chat["prompt_token_ids"]
    assert all("prompt_token_ids" not in chunk for chunk in chunks[1:])


def test_a_chat_equals_the_completion_of_its_rendered_prompt(client: httpx.Client) -> None:
    written = (
        "<|im_start|>system\nBe\nbrief.<|im_end|>\n<|im_start|>user\nWhat is a penstock?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    parts = [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]
    body = SAMPLED | {"messages": [{"role": "system", "content": parts}, *CHAT]}
    chat = client.post("/v1/chat/completions", json=body).json()
    plain = complete(client, prompt=written)
    assert chat["choices"][0]["message"]["content"] == text_of(plain)
    assert chat["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


def test_a_seed_samples_the_same_tokens_in_any_batch(client: httpx.Client) -> None:
    alone = complete(client, prompt="The engine")
    together = complete(client, prompt=["The engine", "The gateway", "The engine"])
    texts = [choice["text"] for choice in together["choices"]]
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    assert texts[0] == texts[2] == text_of(alone) != texts[1]
    assert together["usage"]["completion_tokens"] == 72
    assert text_of(complete(client, prompt="The engine", seed=8)) != text_of(alone)


def test_several_prompts_can_be_streamed(client: httpx.Client) -> None:
    prompts = ["The engine", [40, 41, 42]]
    texts = ["", ""]
    for chunk in events(client, "/v1/completions", SAMPLED | {"prompt": prompts}):
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == [text_of(complete(client, prompt=prompt)) for prompt in prompts]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_stop_string_may_span_tokens(
    client: httpx.Client, include: bool, is_streamed: bool
) -> None:
    """Any three characters of an answer stop it exactly there, wherever the tokens end."""
    full = text_of(complete(client, prompt="The engine"))
    for start in range(0, len(full) - 3, 4):
        stop = full[start : start + 3]
        body = SAMPLED | {
            "prompt": "The engine", "stop": ["never said", stop],
            "include_stop_str_in_output": include,
        }  # fmt: skip
        end = full.index(stop) + (3 if include else 0)
        if is_streamed:
            chunks = [c["choices"][0] for c in events(client, "/v1/completions", body)]
            text, reason = "".join(c["text"] for c in chunks), chunks[-1]["finish_reason"]
        else:
            choice = complete(client, **body)["choices"][0]
            text, reason = choice["text"], choice["finish_reason"]
        assert (text, reason) == (full[:end], "stop")


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_token_is_in_the_text_only_if_requested(
    client: httpx.Client, model_dir: Path, include: bool
) -> None:
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    first = text_of(complete(client, prompt="The engine", max_tokens=1))
    ids = [i for i in range(tokenizer.get_vocab_size()) if tokenizer.decode([i]) == first]
    answer = complete(
        client, prompt="The engine", stop_token_ids=ids, include_stop_str_in_output=include
    )
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1
    assert text_of(answer) == (first if include else "")


def test_an_answer_ends_at_the_end_token_of_the_tokenizer(
    launch: Callable[..., Any], model_dir: Path, tmp_path: Path
) -> None:
    """Fine-tunes often have the end of a turn in tokenizer_config.json alone."""
    folder = tmp_path / "model"
    shutil.copytree(model_dir, folder)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 0}))
    client, _ = launch("--max-model-len", "256", model=folder)
    body = {"prompt": "The engine", "max_tokens": 8, "logit_bias": {"2": 100}}
    ended, ignored = (complete(client, **body, ignore_eos=ignore) for ignore in (False, True))
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ignored["choices"][0]["finish_reason"] == "length"
    grammar = {"structured_outputs": {"regex": "[ab]*"}}
    constrained = complete(client, **body, **grammar, ignore_eos=False)
    assert constrained["usage"]["completion_tokens"] == 1


def test_special_tokens_are_in_the_text_only_if_requested(client: httpx.Client) -> None:
    prompt = "<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>"
    shown = complete(client, prompt=prompt, skip_special_tokens=False, max_tokens=200)
    hidden = complete(client, prompt=prompt, max_tokens=200)
    assert "<|" not in text_of(hidden)
    for special in ("<|im_start|>", "<|im_end|>", "<|endoftext|>"):
        shown["choices"][0]["text"] = text_of(shown).replace(special, "")
    assert text_of(shown) == text_of(hidden)


def test_min_tokens_delays_stop_strings(client: httpx.Client) -> None:
    everything = [" ", "e", "a", "t", "o", "i", "n", "r", "s", "l", "."]
    body = {"prompt": "The engine", "stop": everything, "max_tokens": 40}
    assert complete(client, **body)["usage"]["completion_tokens"] < 12
    assert complete(client, **body, min_tokens=12)["usage"]["completion_tokens"] >= 12


@pytest.mark.parametrize(
    "extra",
    [
        {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 0},
        {"top_k": 1, "seed": None}, {"temperature": 1e-6},
    ],
    ids=str,
)  # fmt: skip
def test_limits_to_one_token_are_greedy(client: httpx.Client, extra: dict[str, Any]) -> None:
    greedy = complete(client, prompt="The engine", temperature=0)
    assert text_of(complete(client, prompt="The engine", **extra)) == text_of(greedy)


def test_neutral_values_of_unsupported_parameters_are_accepted(client: httpx.Client) -> None:
    body = {
        "prompt": "The engine", "n": 1, "best_of": 1, "logprobs": None, "presence_penalty": 0.0,
        "frequency_penalty": 0, "repetition_penalty": 1.0, "echo": False, "suffix": None,
        "logit_bias": {}, "user": "someone", "top_k": -1, "response_format": {"type": "text"},
    }  # fmt: skip
    assert text_of(complete(client, **body)) == text_of(complete(client, prompt="The engine"))


def test_the_context_can_be_filled_to_the_last_token(client: httpx.Client) -> None:
    body = {"prompt": [5] * 2040, "max_tokens": 8}
    assert complete(client, **body)["usage"]["total_tokens"] == 2048


@pytest.mark.parametrize("given", ["", "a-request_1.2", "root:1"])
def test_the_request_id_is_returned(client: httpx.Client, given: str) -> None:
    headers = {"x-request-id": given} if given else {}
    body = {"prompt": "x", "max_tokens": 1}
    answer = client.post("/v1/completions", json=body, headers=headers)
    returned = answer.headers["x-request-id"]
    assert returned == given if given else returned
    assert answer.json()["id"] == f"cmpl-{returned}"


def test_a_request_id_that_could_forge_a_log_is_replaced(client: httpx.Client) -> None:
    answer = client.get("/v1/models", headers={"x-request-id": 'x","model":"y'})
    assert answer.headers["x-request-id"].isalnum()


def test_version_and_ping(client: httpx.Client) -> None:
    assert client.get("/version").json()["version"]
    assert client.get("/ping").status_code == client.post("/ping").status_code == 200
    assert client.get("/health").status_code == 200
