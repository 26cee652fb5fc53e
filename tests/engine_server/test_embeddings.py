"""/v1/embeddings against the hidden states of transformers."""

import base64
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModel, PreTrainedTokenizerFast

TEXTS = ["The engine", "The gateway waits for its engine", "A"]


def embed(client: httpx.Client, given: Any, **more: Any) -> Any:
    answer = client.post("/v1/embeddings", json={"model": "soup", "input": given, **more})
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


def test_they_are_the_last_states_of_transformers(
    client: httpx.Client, expected: list[torch.Tensor]
) -> None:
    answer = embed(client, TEXTS)
    vectors = [torch.tensor(data["embedding"]) for data in answer["data"]]
    assert [data["index"] for data in answer["data"]] == [0, 1, 2]
    for vector, reference in zip(vectors, expected, strict=True):
        torch.testing.assert_close(vector, reference, atol=1e-5, rtol=1e-4)


def test_the_cache_changes_nothing(client: httpx.Client) -> None:
    long = list(range(300, 370))
    first, second = (embed(client, long)["data"][0]["embedding"] for _ in range(2))
    assert first == pytest.approx(second, abs=1e-5)


def test_as_base64(client: httpx.Client) -> None:
    plain = embed(client, TEXTS[0])["data"][0]["embedding"]
    packed = embed(client, TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    raw = base64.b64decode(packed)
    assert struct.unpack(f"<{len(raw) // 4}f", raw) == pytest.approx(plain, abs=1e-5)


def test_only_prompt_tokens_are_charged(client: httpx.Client) -> None:
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
    ],
)
def test_refused(client: httpx.Client, change: dict[str, Any], param: str) -> None:
    answer = client.post("/v1/embeddings", json={"input": "x", **change})
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param
