"""ModelRoutes that pydantic and a real API server accept or refuse."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.modelroute import ModelRouteSpec
from penstock.api.v1alpha1 import API_VERSION
from penstock.clients.kube import Kube
from penstock.clients.resources import MODEL_ROUTES
from penstock.errors import Rejected

BACKENDS = [{"service": "old", "weight": 90}, {"service": "new", "weight": 10}]
RULE: dict[str, Any] = {"backends": BACKENDS}


def spec(rule: object = RULE, **more: object) -> dict[str, object]:
    return {"modelName": "chat", "rules": [rule], **more}


GOOD = [
    spec(),
    spec({"backends": [{"service": "old"}]}),
    spec(RULE | {"stickyBy": "User"}),
    spec(RULE | {"stickyHeader": "x-tenant"}),
    spec(RULE | {"match": {"headers": [{"name": "x-tenant", "value": ""}], "users": ["ada"]}}),
    spec(RULE | {"shadows": [{"service": "new", "revision": "chat-1", "percent": 1}]}),
    spec(modelName="Qwen3-0.6B"),
]
NAMED = "name of an InferenceService"
BAD = [
    (spec(modelName="a/b"), "spec.modelName may have"),
    (spec(modelName=""), ""),
    ({"modelName": "chat", "rules": []}, ""),
    ({"modelName": "chat"}, ""),
    (spec({"backends": []}), ""),
    (spec({"backends": [{"service": "old", "weight": 0}]}), "must have a weight above 0"),
    (spec({"backends": [{"service": "other/old"}]}), NAMED),
    (spec({"backends": [{"service": "old", "weight": -1}]}), ""),
    (spec(RULE | {"stickyBy": "User", "stickyHeader": "x-tenant"}), "exclude each other"),
    (spec(RULE | {"stickyHeader": "X-Tenant"}), "lower case"),
    (spec(RULE | {"match": {"headers": [{"name": "X-Tenant", "value": "a"}]}}), "lower case"),
    (spec(RULE | {"match": {"users": [7]}}), ""),
    (spec(RULE | {"shadows": [{"service": "new", "percent": 0}]}), ""),
    (spec(RULE | {"shadows": [{"service": "New"}]}), NAMED),
]


def pydantic_error(wanted: object) -> str | None:
    try:
        ModelRouteSpec.model_validate(wanted)
    except ValidationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("wanted", GOOD)
def test_valid_routes_are_accepted(wanted: object) -> None:
    assert pydantic_error(wanted) is None


@pytest.mark.parametrize(("wanted", "sentence"), BAD)
def test_invalid_routes_are_refused_with_a_sentence(wanted: object, sentence: str) -> None:
    refusal = pydantic_error(wanted)
    assert refusal is not None
    assert sentence in refusal


@pytest.mark.cluster
async def test_api_server_agrees(kube: Kube) -> None:
    async def server_error(wanted: object) -> str | None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "ModelRoute",
            "metadata": {"name": "agreement", "namespace": "default"},
            "spec": wanted,
        }
        try:
            await kube.create(MODEL_ROUTES, "default", body, dryRun="All", fieldValidation="Strict")
        except Rejected as error:
            return str(error)
        return None

    for wanted in GOOD:
        assert await server_error(wanted) is None, wanted
    for wanted, sentence in BAD:
        refusal = await server_error(wanted)
        assert refusal is not None, wanted
        assert sentence in refusal
