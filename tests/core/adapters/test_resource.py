"""LoraAdapters as records, and engine pods that take adapters."""

import pytest
from tests.support.specs.service_spec import service_spec

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.resource import adapter_resource, placement_of
from penstock.core.manifests.engine_pod import serve_pod
from penstock.core.observed.lora_engine import LoraEngine, lora_engine

BODY = {
    "metadata": {
        "name": "sql",
        "namespace": "team",
        "uid": "1",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "serviceRef": {"name": "chat"},
        "model": {"uri": "pvc://adapters/sql"},
    },
}


def test_an_adapter_without_names_and_placement_has_the_defaults():
    found = adapter_resource(BODY)
    assert (found.key, found.service_key, found.generation) == (
        ("team", "sql"),
        ("team", "chat"),
        3,
    )
    assert found.model_name == "sql"
    assert found.version == AdapterVersion("sql", "pvc://adapters/sql", Placement())


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ({"policy": "All", "eviction": "Never"}, Placement("All", is_pinned=True)),
        ({"policy": "Fixed", "replicas": 3}, Placement("Fixed", 3, 3)),
        ({"minReplicas": 1, "maxReplicas": 4, "priority": 2}, Placement("OnDemand", 1, 4, False, 2)),
        ({"policy": "OnDemand", "eviction": "WhenIdle"}, Placement()),
    ],
)  # fmt: skip
def test_placement(placement, expected):
    assert placement_of(placement) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"engine.lora.maxAdapters": 8}, LoraEngine("Penstock", 8)),
        ({"engine.lora.maxAdapters": 8, "engine.lora.maxCPUAdapters": 32}, LoraEngine("Penstock", 32)),
        ({"engine.lora.maxAdapters": 8, "runtime.type": "VLLM"}, LoraEngine("VLLM", 8)),
        ({"runtime.type": "VLLM"}, None),
    ],
)  # fmt: skip
def test_engine_pods_that_take_adapters(settings, expected):
    pod = {"spec": serve_pod(service_spec(settings=settings), "penstock")}
    assert lora_engine(pod) == expected


@pytest.mark.parametrize("model_uri", ["pvc://models", "hf://org/model"])
@pytest.mark.parametrize("runtime", ["Penstock", "VLLM"])
def test_engine_pods_that_read_fetched_adapters(runtime, model_uri):
    lora = {"engine.lora.maxAdapters": 8, "runtime.type": runtime}
    spec = service_spec(settings=lora, model_cache_claim="cache", model_uri=model_uri)
    pod = {"spec": serve_pod(spec, "penstock")}
    assert lora_engine(pod) == LoraEngine(runtime, 8, "cache")
