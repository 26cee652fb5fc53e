"""Status of a Tenant: conditions and gateways."""

import inspect
import re
from typing import Any

from penstock.core.reconcile.condition_types import TENANT_MEANINGS, TENANT_REASONS, page
from penstock.core.reconcile.route_status import programmed_condition
from penstock.core.reconcile.tenants import tenant_status as module
from penstock.core.reconcile.tenants.tenant_status import TenantInputs, tenant_status
from penstock.core.spec.service import Object
from penstock.core.tenants.identity_claims import claim_holders
from penstock.core.tenants.tenant import ApiKeys, Tenant

NOW = "2026-01-01T01:00:00Z"
ACME = Tenant("acme", 3, identities=(ApiKeys("keys", "acme-keys"),), created_s=2.0)
OLDER = Tenant("older", 1, identities=(ApiKeys("all", "acme-keys"),), created_s=1.0)
APPLIED = {"gateway-1": 3, "gateway-2": 3}


def status_of(*others: Tenant, body: Object | None = None, **changes: Any) -> Object:
    inputs: dict[str, Any] = {
        "tenant": ACME, "holders": claim_holders([ACME, *others]), "applied": APPLIED,
    }  # fmt: skip
    body = body or {"metadata": {"name": "acme", "generation": 3}}
    return tenant_status(body, TenantInputs(**(inputs | changes)), NOW)


def conditions(status: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def messages(status: Object) -> dict[str, str]:
    return {c["type"]: c["message"] for c in status["conditions"]}


def test_a_tenant_that_the_gateways_apply() -> None:
    status = status_of()
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Settled"),
        "Stalled": ("False", "NotStalled"),
    }
    assert status["observedGeneration"] == 3
    assert status["gateways"] == {"total": 2, "programmed": 2}
    body = {"metadata": {"name": "acme", "generation": 3}, "status": status}
    assert status_of(body=body) == status


def test_a_gateway_that_has_an_earlier_spec_or_does_not_know_the_tenant() -> None:
    for behind in (2, None):
        status = status_of(applied=APPLIED | {"gateway-2": behind})
        found = conditions(status)
        assert found["Programmed"] == found["Ready"] == ("False", "GatewaysBehind")
        assert found["Reconciling"] == ("True", "GatewaysBehind")
        assert status["gateways"] == {"total": 2, "programmed": 1}


def test_without_gateways() -> None:
    for applied in ({}, None):
        status = status_of(applied=applied)
        assert conditions(status)["Ready"] == ("False", "NoGateways")
        assert status["gateways"] == {"total": 0, "programmed": 0}


def test_an_identity_of_an_older_tenant_stalls_the_later_one() -> None:
    status = status_of(OLDER)
    found = conditions(status)
    assert found["Accepted"] == found["Ready"] == ("False", "IdentityInUse")
    assert found["Stalled"] == ("True", "IdentityInUse")
    assert found["Reconciling"] == ("False", "IdentityInUse")
    assert found["Programmed"] == ("True", "Programmed")
    assert messages(status)["Accepted"] == (
        "the identity 'keys' is one of the older Tenant older, and counts for that one only; remove it from "
        "one of them"
    )


def test_an_object_that_cannot_be_read_says_why() -> None:
    status = status_of(tenant=ValueError("the Tenant acme cannot be read: 'apiKey' is missing"))
    assert conditions(status)["Stalled"] == ("True", "InvalidSpec")
    assert "'apiKey' is missing" in messages(status)["Ready"]


def test_the_reference_page_has_each_type_and_reason() -> None:
    sources = inspect.getsource(module) + inspect.getsource(programmed_condition)
    words = set(re.findall(r'"([A-Z][A-Za-z]+)"', sources)) - {"True", "False", "Unknown"}
    assert words == {*TENANT_MEANINGS, *TENANT_REASONS}
    listed = page().split("## Conditions of a Tenant")[1]
    assert all(f"`{name}`" in listed for name in words)
