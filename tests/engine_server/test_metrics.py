"""The scrape is vLLM's, to the letter, and its numbers are right."""

import json
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.engine_server.conftest import Engine

CONTRACT = Path(__file__).parents[1] / "golden" / "vllm-0.32-metrics.json"


def test_every_vllm_metric_has_the_type_labels_and_buckets_of_the_contract(engine: Engine) -> None:
    contract = {m["name"]: m for m in json.loads(CONTRACT.read_text())}
    text = httpx.get(f"{engine.url}/metrics").text
    found = 0
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("vllm:"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        wanted = contract[name]
        found += 1
        samples = [s for s in family.samples if not s.name.endswith(("_created", "_sum", "_count"))]
        assert family.type == wanted["type"], name
        labels = {key for s in samples for key in s.labels} - {"le"}
        assert labels == set(wanted["labels"]), name
        for label, values in wanted.get("label_values", {}).items():
            assert {s.labels[label] for s in samples} == set(values), name
        if family.type == "histogram":
            assert [s.labels["le"] for s in samples] == wanted["buckets"], name
    print(f"{found} of the contract's {len(contract)} metrics are exposed")
    assert found >= 30


def test_a_cached_prompt_raises_the_hits_by_the_cached_tokens(engine: Engine) -> None:
    prompt = list(range(10, 110))  # six full blocks of 16, and four tokens
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 2, "temperature": 0}
    for cached in (0, 96):
        hits = engine.metric("vllm:prefix_cache_hits_total")
        queries = engine.metric("vllm:prefix_cache_queries_total")
        usage = httpx.post(f"{engine.url}/v1/completions", json=body).json()["usage"]
        engine.settle()
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached
        assert engine.metric("vllm:prefix_cache_hits_total") - hits == cached
        assert engine.metric("vllm:prefix_cache_queries_total") - queries == 100


def test_counts_add_up(engine: Engine) -> None:
    names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
    before = [engine.metric(name) for name in names]
    stops = engine.metric("vllm:request_success_total", finished_reason="length")
    body = {"prompt": [5, 6, 7], "max_tokens": 11, "ignore_eos": True}
    httpx.post(f"{engine.url}/v1/completions", json=body).raise_for_status()
    engine.settle()
    assert [engine.metric(n) - b for n, b in zip(names, before, strict=True)] == [3, 11]
    assert engine.metric("vllm:request_success_total", finished_reason="length") - stops == 1
