"""Tests of /v1/embeddings against the hidden states of transformers, and of /invocations."""

import base64
import struct
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from transformers import AutoModel, PreTrainedTokenizerFast

from penstock_engine.core.step import SequenceOutput, Step

TEXTS = ["The engine", "The gateway waits for its engine", "A"]


def embed(client: httpx.Client, texts: Any, **more: Any) -> Any:
    answer = client.post("/v1/embeddings", json={"model": "soup", "input": texts, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def expected(model_dir: Path) -> list[torch.Tensor]:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_dir)
    model = AutoModel.from_pretrained(model_dir, dtype=torch.float32).eval()
    vectors = []
    with torch.inference_mode():
        for text in TEXTS:
            states = model(torch.tensor([tokenizer.encode(text)])).last_hidden_state
            vectors.append(torch.nn.functional.normalize(states[0, -1], dim=-1))
    return vectors


def test_embeddings_are_the_last_states_of_transformers(
    client: httpx.Client, expected: list[torch.Tensor]
) -> None:
    answer = embed(client, TEXTS)
    vectors = [torch.tensor(data["embedding"]) for data in answer["data"]]
    assert [data["index"] for data in answer["data"]] == [0, 1, 2]
    for vector, reference in zip(vectors, expected, strict=True):
        torch.testing.assert_close(vector, reference, atol=1e-5, rtol=1e-4)


def test_the_prefix_cache_does_not_change_embeddings(client: httpx.Client) -> None:
    long = list(range(300, 370))
    first, second = (embed(client, long)["data"][0]["embedding"] for _ in range(2))
    assert first == pytest.approx(second, abs=1e-5)


def test_base64_has_the_same_numbers(client: httpx.Client) -> None:
    plain = embed(client, TEXTS[0])["data"][0]["embedding"]
    packed = embed(client, TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    raw = base64.b64decode(packed)
    assert struct.unpack(f"<{len(raw) // 4}f", raw) == pytest.approx(plain, abs=1e-5)


class VectorRunner:
    """Returns a vector of the prompt's first token for each sequence; records the steps' sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        self.sizes.append(len(step.sequences))
        return {
            sequence.request_id: SequenceOutput((1,), embedding=(float(sequence.history[0]), 1.0))
            for sequence in step.sequences
        }


async def test_many_texts_are_computed_some_at_a_time(serve_runner: Any) -> None:
    """Client libraries send up to 2,048 texts, which is what OpenAI takes; here the queue holds 2."""
    runner = VectorRunner()
    client = serve_runner(lambda: runner, max_num_seqs=4, max_num_queued_reqs=2)
    texts = [[number % 1000 + 1] for number in range(2048)]
    raw = {"input": texts, "use_activation": False}
    answer = await client.post("/v1/embeddings", json=raw)
    assert answer.status_code == 200, answer.text
    assert [data["embedding"] for data in answer.json()["data"]] == [[text[0], 1] for text in texts]
    assert max(runner.sizes) == 4
    refused = await client.post("/v1/embeddings", json={"input": [*texts, [1]]})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "input: must not have more than 2048 entries"


def test_shorter_vectors_are_not_supported(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": "x", "dimensions": 8})
    assert answer.json()["error"]["message"] == (
        "dimensions is not supported: the model was not trained for shorter vectors"
    )


def test_usage_has_prompt_tokens_only(client: httpx.Client) -> None:
    tokens = client.post("/tokenize", json={"prompt": TEXTS[1]}).json()["count"]
    assert embed(client, TEXTS[1])["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [10**9]}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"dimensions": 8}, "dimensions"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"model": "other"}, "model"),
        ({"priority": 1}, "priority"),
        ({"embed_dtype": "float64", "encoding_format": "base64"}, "embed_dtype"),
        ({"endianness": "middle", "encoding_format": "base64"}, "endianness"),
        ({"padding": "max_length"}, "padding"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 2049}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 0}, "input"),
        ({"truncate_prompt_tokens": 1, "truncation_side": "middle"}, "truncation_side"),
        ({"use_activation": "maybe"}, "use_activation"),
        ({"task": "embed"}, "task"),
        ({"messages": [{"role": "user", "content": "x"}]}, "input"),
        ({"chat_template": "{{ 1 }}"}, "chat_template"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
    ],
)
def test_invalid_requests_are_rejected(
    client: httpx.Client, change: dict[str, Any], param: str
) -> None:
    answer = client.post("/v1/embeddings", json={"input": "x", **change})
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embed_dtype": "float16"}, "embed_dtype needs encoding_format: base64"),
        ({"endianness": "big"}, "endianness needs encoding_format: base64"),
        ({"truncation_side": "left"}, "truncation_side needs truncate_prompt_tokens"),
        ({"add_generation_prompt": True}, "add_generation_prompt needs messages"),
        ({"normalize": False, "use_activation": False}, "leave one out"),
    ],
)
def test_parameters_without_effect_are_rejected(
    client: httpx.Client, change: dict[str, Any], message: str
) -> None:
    answer = client.post("/v1/embeddings", json={"input": "x", **change})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("flag", ["use_activation", "normalize"])
def test_vectors_are_scaled_unless_disabled(client: httpx.Client, flag: str) -> None:
    plain, scaled, raw = (
        torch.tensor(embed(client, TEXTS[0], **more)["data"][0]["embedding"])
        for more in ({}, {flag: True}, {flag: False})
    )
    assert torch.equal(plain, scaled)
    assert raw.norm() > 1.5
    torch.testing.assert_close(raw / raw.norm(), plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "dtype", "same_size"),
    [
        ("float32", torch.float32, "i4"), ("float16", torch.float16, "i2"),
        ("bfloat16", torch.bfloat16, "i2"), ("fp8_e4m3", torch.float8_e4m3fn, "u1"),
        ("fp8_e5m2", torch.float8_e5m2, "u1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("endianness", "order"), [("little", "<"), ("big", ">"), ("native", "=")])
def test_numbers_in_each_format_and_byte_order(
    client: httpx.Client, name: str, dtype: torch.dtype, same_size: str, endianness: str, order: str
) -> None:
    plain = torch.tensor(embed(client, TEXTS[0])["data"][0]["embedding"]).to(dtype)
    form = {"encoding_format": "base64", "embed_dtype": name, "endianness": endianness}
    raw = base64.b64decode(embed(client, TEXTS[0], **form)["data"][0]["embedding"])
    bits = np.frombuffer(raw, order + same_size).astype(same_size)
    assert torch.equal(torch.from_numpy(bits).view(dtype).float(), plain.float())


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, [300, 301, 302]),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, [300, 301, 302]),
        ({"truncate_prompt_tokens": 3, "truncation_side": "left"}, [307, 308, 309]),
        ({"truncate_prompt_tokens": 10}, list(range(300, 310))),
        ({"truncate_prompt_tokens": -1}, list(range(300, 310))),
    ],
)
def test_prompts_are_truncated(client: httpx.Client, cut: dict[str, Any], kept: list[int]) -> None:
    answer = embed(client, list(range(300, 310)), **cut)
    assert answer["usage"]["prompt_tokens"] == len(kept)
    expected = embed(client, kept)["data"][0]["embedding"]
    assert answer["data"][0]["embedding"] == pytest.approx(expected, abs=1e-5)


def test_a_prompt_is_truncated_to_the_context(client: httpx.Client) -> None:
    long = [300] * 2100
    assert client.post("/v1/embeddings", json={"input": long}).status_code == 400
    assert embed(client, long, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 2047


def test_chats_have_embeddings(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "The engine"}]
    for more in ({}, {"add_generation_prompt": True}, {"continue_final_message": True}):
        ending = {"add_generation_prompt": False} | more
        tokens = client.post("/tokenize", json={"messages": messages} | ending).json()["tokens"]
        answer = client.post("/v1/embeddings", json={"messages": messages} | more)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] == len(tokens)
        expected = embed(client, tokens)["data"][0]["embedding"]
        assert answer.json()["data"][0]["embedding"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("task", [{}, {"task": "embed"}])
def test_pooling_has_the_same_vectors(client: httpx.Client, task: dict[str, str]) -> None:
    answer = client.post("/pooling", json={"input": TEXTS} | task)
    assert answer.status_code == 200, answer.text
    assert answer.json()["id"].startswith("pool-")
    vectors = embed(client, TEXTS)["data"]
    for data, vector in zip(answer.json()["data"], vectors, strict=True):
        assert (data["object"], data["index"]) == ("pooling", vector["index"])
        assert data["data"] == pytest.approx(vector["embedding"], abs=1e-5)
    rejected = client.post("/pooling", json={"input": "x", "task": "classify"})
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "task")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "The engine"}),
        ("/v1/embeddings", {"input": "The engine"}),
    ],
)
def test_invocations_picks_the_route_by_the_body(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    body |= {} if path == "/v1/embeddings" else {"max_tokens": 4, "temperature": 0}
    own, invoked = (client.post(to, json=body) for to in (path, "/invocations"))
    assert (own.status_code, invoked.status_code) == (200, 200)
    assert own.json()["object"] == invoked.json()["object"]
    for name in ("prompt_tokens", "total_tokens"):
        assert own.json()["usage"][name] == invoked.json()["usage"][name]


def test_invocations_ignores_null_fields(client: httpx.Client) -> None:
    body = {"messages": None, "prompt": "The engine", "input": None, "max_tokens": 4}
    answer = client.post("/invocations", json=body)
    assert (answer.status_code, answer.json()["object"]) == (200, "text_completion")


def test_invocations_streams_and_rejects(client: httpx.Client) -> None:
    body = {"prompt": "The engine", "max_tokens": 4, "stream": True}
    assert client.post("/invocations", json=body).text.endswith("data: [DONE]\n\n")
    assert client.post("/invocations", json={"text": "x"}).status_code == 400
    rejected = client.post("/invocations", json={"input": "x", "padding": "max_length"})
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "padding")
