"""Claims of objects on a model name, as their specs and statuses state them."""

import json
from dataclasses import replace

import pytest

from penstock.core.observed.name_claims import (
    ESTABLISHED,
    NameClaim,
    Precedence,
    Standing,
    adapter_claim,
    restored_claim,
    route_claim,
    service_claim,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.spec.service import Object

PENDING, REFUSED = Precedence(Standing.PENDING), Precedence(Standing.REFUSED)


def body_of(spec: Object, status: Object | None = None) -> Object:
    metadata = {"namespace": "n", "name": "x", "creationTimestamp": "1970-01-01T00:01:40Z"}
    return {"metadata": metadata, "spec": spec} | ({"status": status} if status else {})


def condition(kind: str, status: str, reason: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": reason}


TAKEN, INVALID, CONFLICT = (
    condition("SpecValid", "False", "ModelNameInUse"),
    condition("SpecValid", "False", "InvalidSpec"),
    condition("ModelNameConflict", "True", "HeldByOtherNamespace"),
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, PENDING),
        ({"conditions": [INVALID]}, REFUSED),
        ({"conditions": [INVALID], "acceptedSpec": json.dumps({"model": {"uri": "u"}})}, PENDING),
        ({"conditions": [TAKEN]}, Precedence(Standing.PENDING, yields=True)),
        ({"conditions": [INVALID], "stableRevision": "r1"}, ESTABLISHED),
        ({"traffic": [{"revision": "r1", "percent": 100, "cohort": "Primary"}]}, ESTABLISHED),
        ({"conditions": [CONFLICT], "stableRevision": "r1"}, Precedence(yields_short=True)),
    ],
)
def test_precedence_of_a_service(status: Object, expected: Precedence) -> None:
    claim = service_claim(body_of({"model": {"uri": "pvc://m"}}, status))
    assert claim == NameClaim("InferenceService", "n", "x", "x", 100, expected)


def test_a_service_claims_the_name_of_its_accepted_spec() -> None:
    accepted = json.dumps({"model": {"uri": "u", "name": "was"}})
    status = {"conditions": [INVALID], "acceptedSpec": accepted}
    spec = {"model": {"uri": "u", "name": "is"}}
    claims = [service_claim(body_of(spec, each)) for each in (None, status, {"modelName": "told"})]
    assert [claim.model_name for claim in claims if claim] == ["is", "was", "told"]


def test_a_dedicated_pool_claims_no_name() -> None:
    pool = body_of({"model": {}})
    owner = {"kind": "LoraAdapter", "name": "sql", "controller": True}
    pool["metadata"]["ownerReferences"] = [owner | {"apiVersion": "serving.penstock.dev/v1alpha1"}]
    assert service_claim(pool) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, PENDING),
        ({"conditions": [condition("Accepted", "False", "ServiceNotFound")]}, REFUSED),
        (
            {"conditions": [condition("Accepted", "False", "ModelNameInUse")]},
            Precedence(Standing.PENDING, yields=True),
        ),
        ({"stableRevision": "r", "modelName": "sql"}, ESTABLISHED),
        ({"stableRevision": "r", "modelName": "former"}, PENDING),
        (
            {
                "stableRevision": "r",
                "modelName": "sql",
                "conditions": [condition("Accepted", "False", "ServiceNotFound")],
            },
            ESTABLISHED,
        ),
    ],
)
def test_precedence_of_an_adapter(status: Object, expected: Precedence) -> None:
    spec = {"serviceRef": {"name": "chat"}, "model": {"uri": "pvc://a", "name": "sql"}}
    assert adapter_claim(body_of(spec, status)) == NameClaim(
        "LoraAdapter", "n", "x", "sql", 100, expected
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, PENDING),
        ({"observedGeneration": -1}, PENDING),
        ({"modelName": "chat"}, ESTABLISHED),
        ({"modelName": "former"}, PENDING),
        (
            {"conditions": [condition("Accepted", "False", "ModelNameInUse")]},
            Precedence(Standing.PENDING, yields=True),
        ),
        (
            {
                "modelName": "chat",
                "conditions": [condition("Accepted", "False", "ModelNameInUse")],
            },
            Precedence(yields=True),
        ),
    ],
)
def test_precedence_of_a_route(status: Object, expected: Precedence) -> None:
    found = route_claim(body_of({"modelName": "chat", "rules": []}, status))
    assert found == NameClaim("ModelRoute", "n", "x", "chat", 100, expected)


@pytest.mark.parametrize("standing", [Standing.PENDING, Standing.REFUSED])
def test_an_object_that_is_being_deleted_keeps_a_name_from_nobody(standing: Standing) -> None:
    """A finalizer may delay its end for any time, and the operator writes it no other name."""
    deleted = body_of({"model": {"uri": "pvc://m"}}, {"modelName": "chat", "stableRevision": "r1"})
    deleted["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    claim = service_claim(deleted)
    assert claim is not None
    assert claim.precedence == Precedence(Standing.TERMINATING)
    assert (
        restored_claim(deleted | {"status": {}}, claim, replace(claim, precedence=ESTABLISHED))
        == claim
    )
    assert with_next_status(claim, "chat", Standing.ESTABLISHED) == claim
    waiting = Precedence(standing, yields_short=True)
    other = NameClaim("InferenceService", "prod", "chat", "chat", 200, waiting)
    index = NameIndex((claim, other))
    assert index.short_name_holder(claim) == other
    assert index.record_holder(other)
