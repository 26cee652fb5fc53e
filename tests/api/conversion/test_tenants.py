"""Conversion of Tenant objects to core's tenants."""

from typing import Any

import pytest

from penstock.api.conversion.tenants import to_tenant
from penstock.core.tenants.tenant import (
    Access,
    ApiKeys,
    Header,
    Jwt,
    RequestLimits,
    ServiceAccount,
    Tenant,
    UsageLimit,
)

JWT = {"issuer": "https://idp", "audience": "penstock", "claim": "org", "value": "acme"}


def tenant(**spec: Any) -> Tenant:
    metadata = {
        "name": "acme",
        "uid": "1f",
        "generation": 3,
        "creationTimestamp": "2026-11-01T00:00:00Z",
    }
    return to_tenant({"metadata": metadata, "spec": spec})


def test_a_tenant_that_says_nothing_may_do_nothing() -> None:
    assert tenant() == Tenant("acme", 3, uid="1f", created_s=1793491200.0)
    assert not tenant().may_use("team-a", "chat", "/v1/chat/completions")


def test_all_fields_are_read() -> None:
    converted = tenant(
        identities=[
            {"name": "keys", "type": "APIKey", "apiKey": {"secretName": "acme-keys"}},
            {"name": "pods", "type": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "b"}},
            {"name": "sso", "type": "JWT", "jwt": JWT},
            {"name": "sso-2", "type": "JWT", "jwt": JWT | {"jwksURL": "https://idp/keys"}},
            {"name": "edge", "type": "Header", "header": {"name": "X-Tenant", "value": "Acme"}},
        ],
        access=[
            {"namespace": "team-a", "modelNames": ["chat"], "routes": ["/v1/embeddings"]},
            {"namespace": "team-b"},
        ],
        priority=10,
        fairShareWeight=2,
        limits=[
            {"name": "tpm", "resource": "Tokens", "limit": 5, "unit": "Minute"},
            {"name": "m", "resource": "Requests", "limit": 6, "unit": "Month", "modelName": "chat"},
        ],
        requestLimits={"body": "1Ki", "promptTokens": 7, "outputTokens": 8},
        concurrency={"maxRunning": 9, "maxQueued": 0, "queueTimeout": "1m30s"},
        failureMode="Admit",
        suspend="RejectNew",
        costTier="economy",
    )  # fmt: skip
    assert converted == Tenant(
        name="acme",
        generation=3,
        identities=(
            ApiKeys("keys", "acme-keys"),
            ServiceAccount("pods", "a", "b"),
            Jwt("sso", "https://idp", "penstock", "org", "acme"),
            Jwt("sso-2", "https://idp", "penstock", "org", "acme", "https://idp/keys"),
            Header("edge", "x-tenant", "Acme"),
        ),
        access=(
            Access("team-a", frozenset({"chat"}), frozenset({"/v1/embeddings"})),
            Access("team-b"),
        ),
        priority=10,
        fair_share_weight=2,
        limits=(
            UsageLimit("tpm", "Tokens", 5, "Minute"),
            UsageLimit("m", "Requests", 6, "Month", "chat"),
        ),
        request=RequestLimits(1024, 7, 8),
        max_running=9,
        max_queued=0,
        queue_timeout_s=90.0,
        failure_mode="Admit",
        is_suspended=True,
        cost_tier="economy",
        uid="1f",
        created_s=1793491200.0,
    )


def test_what_a_later_version_adds_gives_no_right() -> None:
    converted = tenant(
        identities=[{"name": "cert", "type": "Certificate", "certificate": {"name": "acme"}}],
        suspend="RejectBatches",
        failureMode="Retry",
        color="green",
    )
    assert converted.identities == ()
    assert converted.is_suspended
    assert converted.failure_mode == "Reject"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"limits": [{"name": "cost", "resource": "Dollars", "limit": 5, "unit": "Day"}]},
            "the limit cost counts Dollars by Day, which is unknown",
        ),
        ({"identities": [{"name": "keys", "type": "APIKey"}]}, "'apiKey' is missing"),
        ({"access": [{"modelNames": ["chat"]}]}, "'namespace' is missing"),
        ({"concurrency": {"queueTimeout": "soon"}}, "'soon' is not a duration"),
        ({"access": ["team-a"]}, ""),
        ({"priority": "high"}, "high"),
    ],
)
def test_an_object_that_cannot_be_read_is_an_error_with_its_name(spec: Any, problem: str) -> None:
    with pytest.raises(ValueError, match="the Tenant acme cannot be read: ") as refused:
        tenant(**spec)
    assert problem in str(refused.value)
