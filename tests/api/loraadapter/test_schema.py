"""LoraAdapters that pydantic and a real API server accept or refuse."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.loraadapter.kind import LoraAdapterSpec
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.core.spec.service import API_VERSION
from penstock.errors import Rejected

URI = "pvc://adapters/sql/v3"


def spec(**more: object) -> Object:
    return {"serviceRef": {"name": "chat"}, "model": {"uri": URI}, **more}


def placed(**placement: object) -> Object:
    return spec(placement=placement)


def at(uri: object, **more: object) -> Object:
    return spec(model={"uri": uri, **more})


GOOD = [
    spec(),
    at("pvc://adapters"),
    at("file:///srv/adapters/sql"),
    at(URI, name="Chat.SQL-3"),
    at("hf://org/sql@v3", secretRef={"name": "hub"}),
    at(URI, secretRef={"name": "hub"}),  # after `rollout undo`, which changes the URI alone
    at("s3://adapters/sql"),
    at("oci://registry.example/sql:v3"),
    at(f"https://example.com/sql.tar#sha256={'a' * 64}", secretRef={"name": "web"}),
    placed(policy="All"),
    placed(policy="All", eviction="Never", priority=10),
    placed(policy="Fixed", replicas=2),
    placed(),
    placed(minReplicas=0),
    placed(minReplicas=2, maxReplicas=2),
    placed(policy="OnDemand", maxReplicas=4, priority=-1),
    spec(pool="Shared"),
    spec(pool="Dedicated"),
    spec(pool="Dedicated", dedicated={}),
    spec(pool="Dedicated", dedicated={"minReplicas": 2}),
    spec(pool="Dedicated", dedicated={"maxReplicas": 1}),
    spec(pool="Dedicated", dedicated={"minReplicas": 2, "maxReplicas": 2}),
]
BAD = [
    ({"model": {"uri": URI}}, ""),
    ({"serviceRef": {"name": "chat"}}, ""),
    (spec(serviceRef={"name": "Chat"}), "name of an InferenceService"),
    (spec(serviceRef={"name": "other/chat"}), "name of an InferenceService"),
    (spec(serviceRef={}), ""),
    (at("ftp://adapters/sql"), "must start with pvc://CLAIM/PATH, file:///PATH, hf://, "),
    (at("hf://token@org/sql"), "spec.model.uri must be hf://ORG/NAME"),
    (at("https://me:secret@example.com/sql.tar"), "without spaces, a user, a password or a query"),
    (at("hf://org/sql", secretRef={"name": "My Secret"}), "must be the name of an object"),
    (at("pvc:///sql/v3"), "must name a claim"),
    (at("pvc://adapters/sql/"), "must name a claim"),
    (at("pvc://adapters/../sql"), "must not contain '..'"),
    (at("file:///srv/../etc"), "must not contain '..'"),
    (at(URI, name="chat/sql"), "spec.model.name may have"),
    (at(URI, name=""), ""),
    (placed(policy="Fixed"), "if, and only if, policy is Fixed"),
    (placed(policy="All", replicas=2), "if, and only if, policy is Fixed"),
    (placed(policy="Fixed", replicas=0), ""),
    (placed(policy="All", minReplicas=1), "require policy OnDemand"),
    (placed(policy="Fixed", replicas=1, maxReplicas=2), "require policy OnDemand"),
    (placed(minReplicas=3, maxReplicas=2), "must not be greater than maxReplicas"),
    (placed(maxReplicas=0), ""),
    (placed(policy="Always"), ""),
    (placed(eviction="LRU"), ""),
    (placed(priority=1.5), ""),
    (spec(pool="Own"), ""),
    (spec(dedicated={}), "spec.dedicated requires spec.pool Dedicated"),
    (spec(pool="Shared", dedicated={"minReplicas": 1}), "requires spec.pool Dedicated"),
    (spec(pool="Dedicated", dedicated={"minReplicas": 3, "maxReplicas": 2}), "must not be greater"),
    (spec(pool="Dedicated", dedicated={"minReplicas": 0}), ""),
    (spec(pool="Dedicated", dedicated={"maxReplicas": 1001}), ""),
]


def pydantic_error(wanted: object) -> str | None:
    try:
        LoraAdapterSpec.model_validate(wanted)
    except ValidationError as error:
        return str(error)
    return None


def adapter(wanted: object, name: str = "sql") -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "LoraAdapter",
        "metadata": {"name": name, "namespace": "default"},
        "spec": wanted,
    }


@pytest.mark.parametrize("wanted", GOOD)
def test_valid_adapters_are_accepted(wanted: object) -> None:
    assert pydantic_error(wanted) is None


@pytest.mark.parametrize(("wanted", "sentence"), BAD)
def test_invalid_adapters_are_refused_with_a_sentence(wanted: object, sentence: str) -> None:
    refusal = pydantic_error(wanted)
    assert refusal is not None
    assert sentence in refusal


@pytest.mark.cluster
async def test_api_server_agrees(kube: Kube) -> None:
    async def server_error(body: Object) -> str | None:
        try:
            await kube.create(
                LORA_ADAPTERS, "default", body, dryRun="All", fieldValidation="Strict"
            )
        except Rejected as error:
            return str(error)
        return None

    for wanted in GOOD:
        assert await server_error(adapter(wanted)) is None, wanted
    for case, sentence in BAD:
        refusal = await server_error(adapter(case))
        assert refusal is not None, case
        assert sentence in refusal
    assert await server_error(adapter(spec(), "a" * 63)) is None
    assert "at most 63 characters" in (await server_error(adapter(spec(), "a" * 64)) or "")


@pytest.mark.cluster
async def test_the_service_of_an_adapter_cannot_change_and_all_else_can(kube: Kube) -> None:
    body = adapter(spec(), "moving")
    await kube.create(LORA_ADAPTERS, "default", body)

    async def change(wanted: dict[str, Any]) -> Object:
        return await kube.merge(
            LORA_ADAPTERS, "default", "moving", {"spec": wanted}, manager="test"
        )

    with pytest.raises(Rejected, match="serviceRef must not change; create another LoraAdapter"):
        await change({"serviceRef": {"name": "other"}})
    stored = await change({"model": {"uri": "pvc://adapters/sql/v4"}, "pool": "Shared"})
    assert stored["spec"]["model"] == {"uri": "pvc://adapters/sql/v4"}
    assert "placement" not in stored["spec"]
    assert stored["status"] == {"observedGeneration": -1}
    await kube.delete(LORA_ADAPTERS, "default", "moving")
