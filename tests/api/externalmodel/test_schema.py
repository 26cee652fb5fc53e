"""ExternalModels that pydantic and a real API server accept or refuse."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.externalmodel.kind import ExternalModelSpec
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import EXTERNAL_MODELS
from penstock.core.providers.external_model import ExternalModel
from penstock.core.spec.service import API_VERSION
from penstock.errors import Rejected
from penstock.gateway.snapshots.external_reader import read_external

SPEC: dict[str, Any] = {"url": "https://api.example.com", "api": "OpenAI", "model": "large"}
PRICE = {"promptPerMillionTokens": "0.5", "outputPerMillionTokens": "1.5"}
GOOD = [
    SPEC,
    SPEC | {"url": "http://10.0.0.1:8080/base/"},
    SPEC | {"url": "https://API.example.com:8443"},
    SPEC | {"keySecretRef": {"name": "provider"}},
    SPEC | {"keySecretRef": {"name": "provider", "key": "api_key"}, "api": "Anthropic"},
    SPEC | {"limits": {"maxConcurrentRequests": 1, "requestsPerMinute": 1, "tokensPerMinute": 1}},
    SPEC | {"price": PRICE | {"currency": "EUR"}},
    SPEC | {"timeouts": {"connect": "1s", "firstByte": "30s", "request": "5m"}},
]
BAD = [
    (SPEC | {"url": "api.example.com"}, "must be a URL"),
    (SPEC | {"url": "https://user@example.com"}, "must be a URL"),
    (SPEC | {"url": "https://example.com/?a=b"}, "must be a URL"),
    (SPEC | {"url": "https://example.com/%2e%2e"}, "must be a URL"),
    (SPEC | {"url": "https://[fe80::1]"}, "must be a URL"),
    (SPEC | {"url": "file:///etc/passwd"}, "must be a URL"),
    (SPEC | {"api": "Other"}, ""),
    (SPEC | {"model": ""}, ""),
    (SPEC | {"keySecretRef": {"name": "a/b"}}, "must be the name of an object"),
    (SPEC | {"limits": {"requestsPerMinute": 0}}, ""),
    (SPEC | {"price": PRICE | {"currency": "euro"}}, ""),
    (SPEC | {"price": {"promptPerMillionTokens": "1"}}, ""),
    (SPEC | {"timeouts": {"request": "0s"}}, "must not be zero"),
]


def body(spec: object, name: str = "far") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API_VERSION, "kind": "ExternalModel", "metadata": metadata, "spec": spec}


def pydantic_error(wanted: object) -> str | None:
    try:
        ExternalModelSpec.model_validate(wanted)
    except ValidationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("wanted", GOOD)
def test_valid_external_models_are_accepted(wanted: object) -> None:
    assert pydantic_error(wanted) is None


@pytest.mark.parametrize(("wanted", "sentence"), BAD)
def test_invalid_external_models_are_refused(wanted: object, sentence: str) -> None:
    refusal = pydantic_error(wanted)
    assert refusal is not None
    assert sentence in refusal


def test_defaults_are_those_of_the_descriptions() -> None:
    read = body(SPEC)
    read["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    found = read_external(read)
    assert found == ExternalModel(
        "default", "far", 1_767_225_600, "https://api.example.com", "OpenAI", "large"
    )
    times_s = found.connect_timeout_s, found.first_byte_timeout_s, found.request_timeout_s
    assert times_s == (2.0, 60.0, 600.0)


@pytest.mark.cluster
async def test_api_server_agrees(kube: Kube) -> None:
    async def server_error(wanted: object, name: str = "far") -> str | None:
        try:
            await kube.create(
                EXTERNAL_MODELS,
                "default",
                body(wanted, name),
                dryRun="All",
                fieldValidation="Strict",
            )
        except Rejected as error:
            return str(error)
        return None

    for good in GOOD:
        assert await server_error(good) is None
    for bad, sentence in BAD:
        refusal = await server_error(bad)
        assert refusal is not None
        assert sentence in refusal
    assert "at most 63 characters" in (await server_error(SPEC, "a" * 64) or "")
