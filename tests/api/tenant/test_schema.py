"""Tenants that pydantic and a real API server accept or refuse."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from penstock.api.conversion.tenants import to_tenant
from penstock.api.tenant.kind import MAX_LIMIT, TenantSpec
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import TENANTS
from penstock.core.routing.apis import API_PATHS
from penstock.core.spec.service import API_VERSION
from penstock.errors import Rejected

ROOT = Path(__file__).parents[3]
KEYS: dict[str, Any] = {"name": "keys", "type": "APIKey", "apiKey": {"secretName": "acme-keys"}}
PODS = {
    "name": "pods",
    "type": "ServiceAccount",
    "serviceAccount": {"namespace": "team-a", "name": "batch"},
}
JWT = {"issuer": "https://idp.example/a", "audience": "penstock", "claim": "org", "value": "acme"}
EDGE = {"name": "edge", "type": "Header", "header": {"name": "X-Tenant", "value": "acme"}}
LIMIT: dict[str, Any] = {"name": "tpm", "resource": "Tokens", "limit": 1000, "unit": "Minute"}


def identified(*identities: object) -> dict[str, object]:
    return {"identities": list(identities)}


def signed(**changed: object) -> dict[str, object]:
    return identified({"name": "sso", "type": "JWT", "jwt": JWT | changed})


def header(**changed: object) -> dict[str, object]:
    return identified(EDGE | {"header": {"name": "x-tenant", "value": "acme"} | changed})


def allowed(**access: object) -> dict[str, object]:
    return {"access": [{"namespace": "team-a", **access}]}


def limited(**changed: object) -> dict[str, object]:
    return {"limits": [LIMIT | changed]}


GOOD: list[dict[str, object]] = [
    {},
    identified(KEYS, PODS, EDGE),
    signed(),
    signed(issuer="http://127.0.0.1:8080", jwksURL="https://idp.example/keys?p=1"),
    signed(issuer="http://localhost/realms/a~b"),
    allowed(),
    allowed(modelNames=["chat", "chat-sql"], routes=list(API_PATHS)),
    limited(),
    limited(limit=MAX_LIMIT, unit="Month", resource="OutputTokens", modelName="chat"),
    {"priority": 0, "fairShareWeight": 1000, "failureMode": "Admit", "suspend": "RejectNew"},
    {"requestLimits": {"body": "1Mi", "promptTokens": 1, "outputTokens": 4096}},
    {"requestLimits": {"body": 4096}},
    {"costTier": "economy_1"},
    {"concurrency": {"maxRunning": 1, "maxQueued": 0, "queueTimeout": "1m30s"}},
]
BAD: list[tuple[dict[str, object], str]] = [
    (identified(KEYS | {"type": "JWT"}), "apiKey must be set if, and only if, type is APIKey"),
    (identified({"name": "sso", "type": "JWT"}), "jwt must be set if, and only if, type is JWT"),
    (identified(KEYS | EDGE), "apiKey must be set if, and only if"),
    (identified(PODS | {"type": "Header"}), "serviceAccount must be set if, and only if"),
    (identified(KEYS | {"type": "Password"}), ""),
    (identified(KEYS | {"name": "My keys"}), "lower-case letters"),
    (identified(KEYS | {"apiKey": {"secretName": "a/b"}}), "name of an object"),
    (signed(issuer="http://idp.example"), "http only for localhost"),
    (signed(issuer="http://localhost.example"), "http only for localhost"),
    (signed(issuer="http://127.0.0.1@evil.example"), "http only for localhost"),
    (signed(issuer="https://user:word@idp.example"), "without a user"),
    (signed(issuer="https://idp.example?tenant=a"), "without a user or a query"),
    (signed(jwksURL="file:///keys"), "must be https://"),
    (signed(audience=""), ""),
    ({"costTier": "very cheap"}, "value of a label"),
    ({"costTier": ""}, ""),
    (header(name="x tenant"), "name of an HTTP header"),
    (header(name="Authorization"), "must not be a header with credentials"),
    (header(name="X-API-Key"), "must not be a header with credentials"),
    (header(value=""), ""),
    (allowed(modelNames=[]), ""),
    (allowed(routes=[]), ""),
    (allowed(modelNames=[""]), ""),
    ({"access": [{"modelNames": ["chat"]}]}, ""),
    (limited(limit=0), ""),
    (limited(limit=MAX_LIMIT + 1), ""),
    (limited(resource="Dollars"), ""),
    (limited(unit="Week"), ""),
    ({"priority": -1}, ""),
    ({"priority": 1001}, ""),
    ({"fairShareWeight": 0}, ""),
    ({"suspend": "Always"}, ""),
    ({"requestLimits": {"body": 0}}, "must be at least one byte"),
    ({"requestLimits": {"promptTokens": 0}}, ""),
    ({"concurrency": {"maxRunning": 0}}, ""),
    ({"concurrency": {"queueTimeout": "0s"}}, "must not be zero"),
]
# Lists with two entries of one key.
TWICE = [
    identified(KEYS, EDGE | {"name": "keys"}),
    {"limits": [LIMIT, LIMIT | {"unit": "Day"}]},
    allowed(modelNames=["chat", "chat"]),
    allowed(routes=["/v1/embeddings", "/v1/embeddings"]),
]
# Its message is pydantic's or the API server's.
UNKNOWN_ROUTE = allowed(routes=["/v1/chat"])


def pydantic_error(wanted: object) -> str | None:
    try:
        TenantSpec.model_validate(wanted)
    except ValidationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("wanted", GOOD)
def test_valid_tenants_are_accepted(wanted: object) -> None:
    assert pydantic_error(wanted) is None


@pytest.mark.parametrize(("wanted", "sentence"), BAD)
def test_invalid_tenants_are_refused_with_a_sentence(wanted: object, sentence: str) -> None:
    refusal = pydantic_error(wanted)
    assert refusal is not None
    assert sentence in refusal


@pytest.mark.parametrize("wanted", TWICE)
def test_two_entries_of_one_key_are_refused(wanted: object) -> None:
    assert "two entries" in (pydantic_error(wanted) or "")


def test_an_unknown_route_is_refused_with_the_known_ones() -> None:
    assert "/v1/chat/completions" in (pydantic_error(UNKNOWN_ROUTE) or "")


@pytest.mark.cluster
async def test_api_server_agrees(kube: Kube) -> None:
    async def server_error(wanted: object, name: str = "agreement") -> str | None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "Tenant",
            "metadata": {"name": name},
            "spec": wanted,
        }
        try:
            await kube.create(TENANTS, None, body, dryRun="All", fieldValidation="Strict")
        except Rejected as error:
            return str(error)
        return None

    for wanted in GOOD:
        assert await server_error(wanted) is None, wanted
    for wanted, sentence in BAD:
        refusal = await server_error(wanted)
        assert refusal is not None, wanted
        assert sentence in refusal
    for twice in TWICE:
        assert "Duplicate value" in (await server_error(twice) or "")
    assert '"/v1/chat/completions"' in (await server_error(UNKNOWN_ROUTE) or "")
    assert "no dots" in (await server_error({}, "a.b") or "")


def test_the_example_is_a_tenant_that_may_use_a_model() -> None:
    body = yaml.safe_load((ROOT / "examples" / "tenant.yaml").read_text())
    assert pydantic_error(body["spec"]) is None
    metadata = body["metadata"] | {"creationTimestamp": "2026-01-01T00:00:00Z"}
    tenant = to_tenant(body | {"metadata": metadata})
    assert tenant.may_use("default", "chat", "/v1/chat/completions")
