"""Settings about fetched models and adapters need something that is fetched."""

from typing import Any

import pytest

from penstock.api.conversion.convert import InvalidService, to_core

METADATA = {
    "namespace": "team", "name": "chat", "uid": "u", "generation": 1,
    "creationTimestamp": "2026-01-01T00:00:00Z",
}  # fmt: skip
CACHE, SECRET = {"cache": {"claimName": "cache"}}, {"secretRef": {"name": "hub"}}
LORA = {"lora": {"maxAdapters": 4}}


def service(uri: str, engine: Any, **model: Any) -> Any:
    limits = {"cpu": 1, "memory": "1Gi"}
    spec = {"model": {"uri": uri, **model}, "engine": engine, "resources": {"limits": limits}}
    return {"metadata": METADATA, "spec": spec}


def test_a_service_with_adapters_has_a_cache_whatever_its_own_model() -> None:
    assert to_core(service("pvc://models", LORA, **CACHE)).model_cache_claim == "cache"
    assert to_core(service("hf://org/model", {}, **CACHE, **SECRET)).model_secret == "hub"


def test_the_cache_of_nodes() -> None:
    def read(**cache: Any) -> tuple[str | None, bool]:
        made = to_core(service("hf://org/model", {}, cache=cache))
        return made.model_cache_claim, made.uses_node_cache

    assert read(type="Node") == (None, True)
    assert read(claimName="cache") == read(claimName="cache", type="Claim") == ("cache", False)


@pytest.mark.parametrize(
    ("engine", "model", "field"),
    [
        ({}, CACHE, "cache"),
        (LORA, {"cache": {"type": "Node"}}, "cache"),
        (LORA, SECRET, "secretRef"),
    ],
)
def test_a_setting_without_effect_is_refused(engine: Any, model: Any, field: str) -> None:
    with pytest.raises(
        InvalidService, match=f"spec.model.{field} has no effect on a model in a volume"
    ):
        to_core(service("pvc://models", engine, **model))


@pytest.mark.parametrize(
    ("uri", "sources"), [("pvc://cache/chat", []), ("hf://org/model", ["pvc://cache"])]
)
def test_a_cache_has_a_claim_of_its_own(uri: str, sources: list[str]) -> None:
    engine = {"lora": {"maxAdapters": 4, **({"sources": sources} if sources else {})}}
    with pytest.raises(InvalidService, match="claimName is the claim of pvc://cache"):
        to_core(service(uri, engine, **CACHE))
    assert to_core(service(uri, engine, cache={"claimName": "other"}))
