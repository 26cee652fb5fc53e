"""Tests of speculative decoding over HTTP: equal answers, metrics, streams."""

from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families


def samples(client: httpx.Client) -> dict[tuple[str, str], float]:
    """Returns the samples of the speculation metrics by name and position."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, sample.labels.get("position", "")): sample.value
        for family in families
        for sample in family.samples
        if "spec_decode" in sample.name
    }


@pytest.fixture(scope="module")
def speculating(launch: Any) -> httpx.Client:
    config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}'
    client: httpx.Client
    client, _ = launch("--max-model-len", "512", "--speculative-config", config)
    return client


def test_answers_are_the_same_and_drafts_are_counted(
    speculating: httpx.Client, client: httpx.Client
) -> None:
    body = {"prompt": "one two one two one two", "max_tokens": 60, "temperature": 0}
    before = samples(speculating)
    answer, plain = (c.post("/v1/completions", json=body).json() for c in (speculating, client))
    assert answer["choices"] == plain["choices"]
    assert answer["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
    after = samples(speculating)
    gained = {key: after[key] - before[key] for key in after}
    drafts = gained["vllm:spec_decode_num_drafts_total", ""]
    tried = gained["vllm:spec_decode_num_draft_tokens_total", ""]
    right = gained["vllm:spec_decode_num_accepted_tokens_total", ""]
    by_position = [
        gained["vllm:spec_decode_num_accepted_tokens_per_pos_total", str(i)] for i in range(3)
    ]
    assert 0 < right <= tried <= 3 * drafts
    assert sum(by_position) == right
    assert by_position == sorted(by_position, reverse=True)
    assert drafts >= by_position[0]


def test_every_token_of_a_step_has_its_logprob(speculating: httpx.Client) -> None:
    """The request also has a stop string, which is checked between the tokens of a step."""
    body = {
        "prompt": "a b a b a b", "max_tokens": 40, "temperature": 0, "logprobs": 0, "stop": ["zz"],
        "return_token_ids": True,
    }  # fmt: skip
    choice = speculating.post("/v1/completions", json=body).json()["choices"][0]
    assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"]) == 40


def test_speculation_metrics_need_the_flag(client: httpx.Client) -> None:
    assert samples(client) == {}
