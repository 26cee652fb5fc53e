"""Tests of sampling parameters and log-probabilities over HTTP."""

import json
import math
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

Json = dict[str, Any]
PROMPT = "A penstock is a gated pipe"


def complete(client: httpx.Client, **body: Any) -> Json:
    answer = client.post("/v1/completions", json={"prompt": PROMPT, "ignore_eos": True} | body)
    assert answer.status_code == 200, answer.text
    result: Json = answer.json()
    return result


def chat(client: httpx.Client, **body: Any) -> Json:
    messages = [{"role": "user", "content": PROMPT}]
    answer = client.post("/v1/chat/completions", json={"messages": messages} | body)
    assert answer.status_code == 200, answer.text
    result: Json = answer.json()
    return result


@pytest.fixture(scope="session")
def tokenizer(model_dir: Any) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


def test_n_choices_equal_those_of_n_seeds(client: httpx.Client) -> None:
    """Choice k equals the answer for seed + k. The prompt is counted once."""
    many = complete(client, n=3, seed=11, max_tokens=8)
    single = [complete(client, seed=11 + k, max_tokens=8)["choices"][0]["text"] for k in range(3)]
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in many["choices"]] == single
    assert len(set(single)) == 3
    alone = complete(client, seed=11, max_tokens=8)["usage"]
    assert many["usage"]["prompt_tokens"] == alone["prompt_tokens"]
    assert many["usage"]["completion_tokens"] == 24


def test_requests_without_a_seed_differ(client: httpx.Client) -> None:
    texts = {complete(client, max_tokens=12)["choices"][0]["text"] for _ in range(4)}
    assert len(texts) > 1


def test_equal_prompts_of_one_request_without_a_seed_differ(client: httpx.Client) -> None:
    choices = complete(client, prompt=[PROMPT] * 4, temperature=1, max_tokens=12)["choices"]
    assert len({choice["text"] for choice in choices}) == 4


def test_a_large_bias_forces_a_token(client: httpx.Client, tokenizer: Tokenizer) -> None:
    body = {"logit_bias": {"77": 100}, "max_tokens": 3, "temperature": 0}
    assert complete(client, **body)["choices"][0]["text"] == tokenizer.decode([77] * 3)


def test_only_allowed_tokens_are_sampled(client: httpx.Client) -> None:
    body = {"allowed_token_ids": [70, 71, 72], "max_tokens": 30, "return_token_ids": True}
    assert set(complete(client, **body)["choices"][0]["token_ids"]) <= {70, 71, 72}


def test_a_bad_word_is_never_sampled(client: httpx.Client, tokenizer: Tokenizer) -> None:
    """A bias that would force the word everywhere has no effect."""
    token, word = next(
        (token, word)
        for word in ("engine", "service", "the", "a")
        for token in tokenizer.encode(f" {word}").ids[-1:]
        if tokenizer.encode(f" {word}").ids == [token]
    )
    body = {
        "max_tokens": 8, "temperature": 0, "return_token_ids": True, "logit_bias": {token: 100},
    }  # fmt: skip
    assert complete(client, **body)["choices"][0]["token_ids"] == [token] * 8
    sampled = complete(client, bad_words=[word], **body)["choices"][0]["token_ids"]
    assert token not in sampled


def test_penalties_reduce_repetition(client: httpx.Client) -> None:
    body = {"max_tokens": 40, "temperature": 0, "return_token_ids": True}
    plain = complete(client, **body)["choices"][0]["token_ids"]
    varied = complete(client, presence_penalty=2, frequency_penalty=2, **body)
    assert len(set(varied["choices"][0]["token_ids"])) > len(set(plain))


def test_chat_logprobs_have_an_entry_per_token(client: httpx.Client) -> None:
    """Greedy tokens are the first of their top_logprobs."""
    body = {"max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    choice = chat(client, **body)["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    for entry in content:
        best = entry["top_logprobs"][0]
        assert (best["token"], best["logprob"]) == (entry["token"], entry["logprob"])
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert len(entry["top_logprobs"]) == 3
        assert entry["logprob"] <= 0


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stop", [None, "e", ["never said, however long", " nor this"]])
def test_streamed_logprobs_equal_the_whole_ones(
    client: httpx.Client, stop: str | list[str] | None, echo: bool
) -> None:
    """No entry is lost if text is held back for a stop string or an incomplete character."""
    body = {"max_tokens": 20, "seed": 4, "logprobs": 2, "stop": stop, "echo": echo}
    whole = complete(client, **body)["choices"][0]["logprobs"]
    with client.stream(
        "POST", "/v1/completions",
        json={"prompt": PROMPT, "ignore_eos": True, "stream": True} | body,
    ) as answer:  # fmt: skip
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    parts = [json.loads(line)["choices"][0]["logprobs"] for line in lines[:-1]]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for part in parts for value in part[name]]
        assert streamed == whole[name]


def test_an_echo_with_logprobs_has_those_of_the_prompt(client: httpx.Client) -> None:
    """All tokens but the first have one. Evaluation harnesses use this."""
    answer = complete(client, echo=True, logprobs=1, max_tokens=2, temperature=0)
    choice, usage = answer["choices"][0], answer["usage"]
    assert choice["text"].startswith(PROMPT)
    logprobs = choice["logprobs"]
    assert len(logprobs["tokens"]) == usage["total_tokens"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert "".join(logprobs["tokens"]) == choice["text"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"].startswith(token, offset)
    for token, top in zip(logprobs["tokens"][1:], logprobs["top_logprobs"][1:], strict=True):
        assert next(iter(top)) == token
        assert len(top) <= 2


def test_an_echo_repeats_the_prompt_as_it_was_sent(client: httpx.Client) -> None:
    """Its special tokens are kept, so that offsets and the prompt's length are places in the text."""
    prompt = "<|im_start|>user\nhi — 日本 🌦️<|im_end|>\n"
    ids = client.post("/tokenize", json={"prompt": prompt}).json()["tokens"]
    for sent in (prompt, ids):
        body = {"prompt": sent, "echo": True, "logprobs": 0, "max_tokens": 4, "temperature": 0}
        choice = complete(client, **body)["choices"][0]
        assert choice["text"].startswith(prompt)
        logprobs = choice["logprobs"]
        assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
            assert "\ufffd" in token or choice["text"].startswith(token, offset)
        assert logprobs["text_offset"][len(ids)] == len(prompt)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompts", [PROMPT, [PROMPT, "The gateway"]])
def test_a_prompt_is_scored_without_an_answer(
    client: httpx.Client, prompts: Any, stream: bool
) -> None:
    body = {"prompt": prompts, "echo": True, "logprobs": 1, "temperature": 0}
    longer = complete(client, max_tokens=1, **body)
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = client.post(
        "/v1/completions", json=body | options | {"max_tokens": 0, "stream": stream}
    )
    assert answer.status_code == 200, answer.text
    lines = answer.text.split("\n\n") if stream else [answer.text]
    bodies = [json.loads(line.removeprefix("data: ")) for line in lines if line.endswith("}")]
    choices = sorted((c for b in bodies for c in b["choices"]), key=lambda c: c["index"])
    sent = [prompts] if isinstance(prompts, str) else prompts
    assert [choice["text"] for choice in choices] == sent
    for choice, reference in zip(choices, longer["choices"], strict=True):
        assert choice["finish_reason"] == "length"
        own, longer_own = choice["logprobs"], reference["logprobs"]
        for name in ("tokens", "text_offset"):
            assert own[name] == longer_own[name][:-1]
        assert own["token_logprobs"][1:] == pytest.approx(
            longer_own["token_logprobs"][1:-1], abs=1e-4
        )
        assert list(map(list, own["top_logprobs"][1:])) == list(
            map(list, longer_own["top_logprobs"][1:-1])
        )
    prompt_tokens = longer["usage"]["prompt_tokens"]
    assert bodies[-1]["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": prompt_tokens, "completion_tokens": 0, "total_tokens": prompt_tokens,
        "prompt_tokens_details": None,
    }  # fmt: skip


def test_bytes_of_tokens_join_to_the_text(client: httpx.Client) -> None:
    """Some characters are split over tokens that have no text of their own."""
    text = "naïve €5, 日本 👩‍👩‍👧"
    ids = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert len(ids) > len(text)
    body = {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 0}
    names = complete(client, **body)["choices"][0]["logprobs"]["tokens"]
    assert any("\ufffd" in name for name in names)
    content = []
    for token in ids:
        forced = chat(client, logprobs=True, max_tokens=1, allowed_token_ids=[token])
        content += forced["choices"][0]["logprobs"]["content"][0]["bytes"]
    assert bytes(content).decode() == text


def test_a_stop_token_that_the_model_lacks_never_stops(client: httpx.Client) -> None:
    """Clients have one list for several models, such as the two end tokens of Llama 3."""
    body = {"min_tokens": 2, "allowed_token_ids": [70], "return_token_ids": True}
    choice = complete(client, stop_token_ids=[999_999], max_tokens=4, **body)["choices"][0]
    assert (choice["token_ids"], choice["finish_reason"]) == ([70] * 4, "length")
    choice = complete(
        client, stop_token_ids=[999_999, 70, 71], max_tokens=1, **body | {"min_tokens": 0}
    )
    assert choice["choices"][0]["stop_reason"] == 70


def test_minus_one_is_no_thinking_budget_on_any_engine(client: httpx.Client) -> None:
    assert len(complete(client, thinking_token_budget=-1, max_tokens=1)["choices"]) == 1
    answer = client.post("/v1/completions", json={"prompt": "a", "thinking_token_budget": 5})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "thinking_token_budget")


def test_prompt_logprobs_do_not_depend_on_the_cache(client: httpx.Client) -> None:
    """The second request finds all blocks in the prefix cache, but does not use them."""
    body = {"prompt_logprobs": 2, "max_tokens": 1, "prompt": PROMPT * 20}
    first, second = complete(client, **body), complete(client, **body)
    entries = first["choices"][0]["prompt_logprobs"]
    assert entries[0] is None
    assert len(entries) == first["usage"]["prompt_tokens"]
    assert all(2 <= len(entry) <= 3 for entry in entries[1:])
    assert {entry["rank"] for entry in entries[5].values()} >= {1, 2}
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for one, other in zip(entries[1:], second["choices"][0]["prompt_logprobs"][1:], strict=True):
        assert one.keys() == other.keys()


def test_stop_reason_is_the_stop_string_or_token(client: httpx.Client) -> None:
    greedy = {"max_tokens": 20, "temperature": 0, "return_token_ids": True}
    tokens = complete(client, **greedy)["choices"][0]["token_ids"]
    choice = complete(client, stop_token_ids=[tokens[2]], **greedy)["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", tokens[2])
    text = complete(client, **greedy)["choices"][0]["text"]
    stop = text[3:6]
    choice = complete(client, stop=[stop], **greedy)["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 100_000}, "n"),
        ({"n": 100, "prompt": ["a", "b"]}, "n"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": "2"}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(5000)}}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [999_999]}, "allowed_token_ids"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": -2}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"logprobs": 21, "logprob_token_ids": [5]}, "logprobs"),
        ({"logprobs": 1, "logprob_token_ids": []}, "logprob_token_ids"),
        ({"logprobs": 1, "logprob_token_ids": [999_999]}, "logprob_token_ids"),
        ({"logprobs": 1, "logprob_token_ids": list(range(129))}, "logprob_token_ids"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 0}, "prompt"),
        ({"truncate_prompt_tokens": 2048}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 1, "truncation_side": "top"}, "truncation_side"),
        ({"use_beam_search": True}, "use_beam_search"),
        *(
            ({"cache_salt": salt}, "cache_salt")
            for salt in ("a/b", "a@b", "a\\b", "a\0", "a" * 129, "")
        ),
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": ["a"] * 1000}, "bad_words"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_rejected(client: httpx.Client, body: Json, param: str) -> None:
    answer = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1} | body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"logprob_token_ids": [5]}, "only allowed with logprobs"),
        ({"truncation_side": "left"}, "only allowed with truncate_prompt_tokens"),
        ({"use_beam_search": True}, "no beam search"),
        ({"logprobs": 21}, "--max-logprobs"),
        ({"n": 129}, "--max-n-sequences"),
    ],
)
def test_errors_name_the_flag_or_parameter_to_change(
    client: httpx.Client, body: Json, words: str
) -> None:
    answer = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1} | body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sampled_id", [42, 500])
def test_logprob_token_ids_select_the_reported_tokens(
    client: httpx.Client, sampled_id: int, stream: bool
) -> None:
    """The sampled token comes first, then the named ones, each once."""
    named = [500, 100, 300]
    body = {
        "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "logprobs": True,
        "allowed_token_ids": [sampled_id], "return_tokens_as_token_ids": True, "stream": stream,
    }  # fmt: skip
    answer = client.post(
        "/v1/chat/completions", json=body | {"logprob_token_ids": named, "top_logprobs": 5}
    )
    lines = answer.text.split("\n\n") if stream else [answer.text]
    bodies = [json.loads(line.removeprefix("data: ")) for line in lines if "logprobs" in line]
    choices = [c["logprobs"] for b in bodies for c in b["choices"] if c.get("logprobs")]
    entries = [entry for one in choices for entry in one["content"]]
    assert len(entries) == 2
    ids = [sampled_id, *(token for token in named if token != sampled_id)]
    for entry in entries:
        top = entry["top_logprobs"]
        assert [one["token"] for one in top] == [f"token_id:{token}" for token in ids]
        assert top[0]["logprob"] == entry["logprob"]
        assert all(-9999 <= one["logprob"] <= 0 for one in top)


@pytest.fixture(scope="module")
def unlimited(launch: Any) -> httpx.Client:
    """A client of an engine without a limit on logprobs, with token ids for texts, and n <= 4."""
    client: httpx.Client
    client, _ = launch(
        "--max-model-len", "512", "--max-logprobs", "-1", "--return-tokens-as-token-ids",
        "--max-n-sequences", "4",
    )  # fmt: skip
    return client


def test_minus_one_reports_the_whole_vocabulary(unlimited: httpx.Client, model_dir: Any) -> None:
    size = json.loads((model_dir / "config.json").read_text())["vocab_size"]
    body = {"prompt": [9, 8, 7], "max_tokens": 1, "logprobs": -1, "prompt_logprobs": -1}
    choice = unlimited.post("/v1/completions", json=body).json()["choices"][0]
    (top,) = choice["logprobs"]["top_logprobs"]
    assert len(top) == size
    assert sum(math.exp(value) for value in top.values()) == pytest.approx(1, abs=1e-3)
    assert [entry and len(entry) for entry in choice["prompt_logprobs"]] == [None, size, size]
    ranks = [entry["rank"] for entry in choice["prompt_logprobs"][1].values()]
    assert sorted(ranks) == list(range(1, size + 1))
    chat = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1, "logprobs": True}
    answer = unlimited.post("/v1/chat/completions", json=chat | {"top_logprobs": -1}).json()
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == size
    named = body | {"prompt_logprobs": None, "logprobs": 1, "logprob_token_ids": [5, 6]}
    few = unlimited.post("/v1/completions", json=named | {"allowed_token_ids": [5]}).json()
    given = few["choices"][0]["logprobs"]["top_logprobs"][0]
    assert given == {name: pytest.approx(top[name]) for name in ("token_id:5", "token_id:6")}


def test_a_request_overrides_return_tokens_as_token_ids(unlimited: httpx.Client) -> None:
    body = {"prompt": "The engine", "max_tokens": 1, "logprobs": 1, "seed": 1}
    names = []
    for extra in ({}, {"return_tokens_as_token_ids": False}, {"return_tokens_as_token_ids": None}):
        answer = unlimited.post("/v1/completions", json=body | extra).json()
        names += answer["choices"][0]["logprobs"]["tokens"]
    assert [name.startswith("token_id:") for name in names] == [True, False, True]


def test_a_flag_limits_the_number_of_choices(unlimited: httpx.Client) -> None:
    body = {"prompt": "a", "max_tokens": 1}
    assert len(unlimited.post("/v1/completions", json=body | {"n": 4}).json()["choices"]) == 4
    error = unlimited.post("/v1/completions", json=body | {"n": 5}).json()["error"]
    assert (error["param"], "4 (--max-n-sequences)" in error["message"]) == ("n", True)


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, slice(-3, None)),
        ({"truncate_prompt_tokens": 3, "truncation_side": "left"}, slice(-3, None)),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, slice(0, 3)),
        ({"truncate_prompt_tokens": 500}, slice(0, None)),
    ],
    ids=str,
)
def test_a_prompt_is_truncated(client: httpx.Client, extra: Json, kept: slice) -> None:
    prompt = list(range(300, 340))
    body = {"prompt": prompt, "max_tokens": 1, "return_token_ids": True}
    choice = client.post("/v1/completions", json=body | extra).json()["choices"][0]
    assert choice["prompt_token_ids"] == prompt[kept]


def test_minus_one_truncates_to_the_context(client: httpx.Client) -> None:
    words = "word " * 9000
    body: Json = {"truncate_prompt_tokens": -1}
    messages = [{"role": "user", "content": words}]
    for path, prompt, limit in (
        ("/v1/completions", {"prompt": words}, "max_tokens"),
        ("/v1/chat/completions", {"messages": messages}, "max_completion_tokens"),
        ("/v1/responses", {"input": words}, "max_output_tokens"),
    ):
        usage = client.post(path, json=body | prompt | {limit: 8}).json()["usage"]
        assert usage.get("prompt_tokens", usage.get("input_tokens")) == 2040
    last = client.post("/v1/chat/completions", json=body | {"messages": messages}).json()
    assert last["usage"]["prompt_tokens"] == 2047


def test_parameters_that_leave_no_token_are_a_400(client: httpx.Client) -> None:
    """The engine answers the next request."""
    body = {"prompt": "a", "allowed_token_ids": [70], "logit_bias": {}, "max_tokens": 4}
    text = complete(client, allowed_token_ids=[70], max_tokens=1)["choices"][0]["text"]
    answer = client.post("/v1/completions", json=body | {"bad_words": [text]})
    assert answer.status_code == 400, answer.text
    assert "leave no token" in answer.json()["error"]["message"]
    assert complete(client, max_tokens=1)["usage"]["completion_tokens"] == 1
