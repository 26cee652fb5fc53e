"""Which of several objects gets a model name."""

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.observed.name_claims import (
    CLAIM_KINDS,
    ESTABLISHED,
    ClaimKind,
    NameClaim,
    ObjectKey,
    Precedence,
    Standing,
    adapter_claim,
    holders,
    restored_claim,
    route_claim,
    service_claim,
    short_name_holder,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.spec.service import Object

PENDING, REFUSED = Precedence(Standing.PENDING), Precedence(Standing.REFUSED)
PROD = NameClaim("InferenceService", "prod", "chat", "chat", 100)
EVIL = NameClaim("InferenceService", "evil", "chat", "chat", 200)


def holder_of(*claims: NameClaim) -> str:
    """The namespace that has the short name, whatever the order of the claims."""
    (found,) = {short_name_holder(each).namespace for each in (claims, claims[::-1])}
    return found


@pytest.mark.parametrize("kind", CLAIM_KINDS)
def test_the_older_claim_keeps_the_short_name(kind: Any) -> None:
    other = replace(EVIL, kind=kind)
    assert holder_of(PROD, other) == "prod"
    assert holder_of(PROD, replace(other, created_s=50)) == "evil"
    names = NameIndex((PROD, other))
    assert names.describe_conflict(PROD) == ""
    assert names.describe_conflict(other) == (
        "clients reach 'chat' of this namespace as evil/chat only: the name alone is that of the "
        "InferenceService prod/chat, which had it first"
    )


@pytest.mark.parametrize("precedence", [PENDING, REFUSED])
def test_what_has_never_answered_takes_no_short_name(precedence: Precedence) -> None:
    older = replace(EVIL, created_s=50, precedence=precedence)
    assert holder_of(PROD, older) == "prod"
    assert holder_of(replace(PROD, precedence=PENDING), older) == (
        "evil" if precedence == PENDING else "prod"
    )
    assert holder_of(older) == "evil"


def test_an_older_claim_that_answers_late_does_not_take_the_name_back() -> None:
    waiting = replace(EVIL, created_s=50, precedence=PENDING)
    assert NameIndex((PROD, waiting)).describe_conflict(waiting)
    answers = replace(waiting, precedence=Precedence(yields_short=True))
    assert holder_of(PROD, answers) == "prod"
    assert holder_of(replace(PROD, precedence=REFUSED), answers) == "evil"


def test_a_renamed_object_takes_no_name_that_is_held() -> None:
    old = replace(EVIL, created_s=50, model_name="other")
    assert with_next_status(old, "other", Standing.ESTABLISHED) == old
    renamed = with_next_status(old, "chat", Standing.ESTABLISHED)
    assert holder_of(PROD, renamed) == "prod"
    assert holder_of(replace(PROD, precedence=PENDING), replace(renamed, created_s=300)) == "evil"
    refused = with_next_status(replace(old, precedence=REFUSED), "chat", Standing.REFUSED)
    assert refused.precedence == REFUSED


def test_a_namespace_keeps_its_short_name_when_a_route_is_added() -> None:
    front = NameClaim("ModelRoute", "prod", "front", "chat", 300)
    assert short_name_holder((PROD, EVIL, front)) == front
    assert short_name_holder((replace(PROD, created_s=250), EVIL, front)) == EVIL


def test_precedence_within_a_namespace() -> None:
    route, service, adapter = (
        NameClaim(kind, "n", kind.lower(), "m", 9 - i) for i, kind in enumerate(CLAIM_KINDS)
    )
    assert holders((adapter, service, route)) == {"n": route}
    assert holders((adapter, service)) == {"n": service}
    assert holders((adapter, replace(service, precedence=PENDING))) == {"n": adapter}
    younger = replace(service, name="younger", created_s=99)
    assert holders((younger, service)) == {"n": service}
    assert holders((younger, replace(service, precedence=Precedence(yields=True)))) == {
        "n": younger
    }


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


CLAIMS = st.builds(
    NameClaim,
    kind=st.sampled_from(CLAIM_KINDS),
    namespace=st.sampled_from(["a", "b", "c"]),
    name=st.sampled_from(["x", "y"]),
    model_name=st.just("m"),
    created_s=st.integers(0, 9),
    precedence=st.builds(Precedence, st.sampled_from(Standing), st.booleans(), st.booleans()),
)


@given(st.lists(CLAIMS, min_size=1, max_size=8, unique_by=lambda each: each.key), CLAIMS)
def test_a_newcomer_takes_nothing(claims: list[NameClaim], newcomer: NameClaim) -> None:
    """An object of another namespace that is younger, refused or has never answered changes no holder."""
    before = short_name_holder(claims)
    newcomer = replace(newcomer, namespace="z", created_s=10)
    if before.precedence != ESTABLISHED:
        newcomer = replace(newcomer, precedence=Precedence(Standing.TERMINATING, yields_short=True))
    after = [*claims, newcomer]
    assert short_name_holder(after) == before
    assert holders(after) == holders(claims) | {"z": newcomer}


@given(st.lists(CLAIMS, min_size=1, max_size=20), CLAIMS)
def test_the_index_finds_the_holders_among_the_last_claims(
    claims: list[NameClaim], own: NameClaim
) -> None:
    index, last = NameIndex(), {}
    for each in claims:
        index.put(replace(each, model_name="before"))
        index.put(each)
        last[each.key] = each
    for key, each in last.items():
        assert index.get(key) == each
    for each in (*last.values(), own):
        rivals = (last | {each.key: each}).values()
        assert index.short_name_holder(each) == short_name_holder(rivals)
        assert index.holder(each) == holders(rivals)[each.namespace]
        of_kind = [rival for rival in rivals if rival.kind == each.kind]
        assert index.holder(each, kinds=(each.kind,)) == holders(of_kind)[each.namespace]
        before = replace(each, model_name="before")
        assert index.short_name_holder(before) == before
    for key in last:
        index.remove(key)
        index.remove(key)
    for key, each in last.items():
        assert index.get(key) is None
        assert index.short_name_holder(each) == each


@given(st.lists(CLAIMS, max_size=8), st.lists(CLAIMS, max_size=8))
def test_objects_are_told_when_a_change_of_another_one_decides_otherwise(
    claims: list[NameClaim], changes: list[NameClaim]
) -> None:
    told: list[NameClaim] = []
    index, last = NameIndex(claims, affected=told.append), {each.key: each for each in claims}
    for each in changes:
        before = {claim: decisions(index, claim) for claim in last.values()}
        told.clear()
        if last.pop(each.key, None) != each:
            index.put(each)
            last[each.key] = each
        else:
            index.remove(each.key)
        after = {claim: decisions(index, claim) for claim in last.values() if claim != each}
        assert sorted(told, key=lambda claim: claim.key) == sorted(
            (claim for claim, found in after.items() if found != before[claim]),
            key=lambda claim: claim.key,
        )


def decisions(index: NameIndex, claim: NameClaim) -> tuple[str, ObjectKey]:
    """What an object's status says of its name."""
    return index.describe_conflict(claim), index.holder(claim, kinds=(claim.kind,)).key


def test_an_event_of_the_holder_does_not_undo_that_it_holds_the_name() -> None:
    """Its status says that it yields until its own pass has written it."""
    stated = replace(PROD, precedence=Precedence(yields_short=True))
    other = replace(stated, namespace="other", created_s=200)
    index = NameIndex((stated, other))
    assert not index.record_holder(other)
    index.put(stated)
    assert index.get(PROD.key) == PROD
    assert index.record_holder(other)
    assert index.settle(PROD, yields=False) == ""
    index.put(stated)
    assert index.get(PROD.key) == PROD
    index.put(PROD)
    index.put(stated)
    assert index.get(PROD.key) == stated


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
    other = replace(PROD, created_s=200, precedence=Precedence(standing, yields_short=True))
    index = NameIndex((claim, other))
    assert index.short_name_holder(claim) == other
    assert index.record_holder(other)


@pytest.mark.parametrize("kind", CLAIM_KINDS)
def test_the_cost_of_a_decision_does_not_grow_with_the_claims_on_its_name(kind: ClaimKind) -> None:
    def count_calls(num_claims: int) -> int:
        claims = [
            NameClaim(kind, "evil", f"x-{i}", "chat", i, Precedence(Standing.PENDING, yields=i > 0))
            for i in range(num_claims)
        ]
        index, calls = NameIndex(claims), 0

        def count(_: Any, event: str, __: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        for claim in claims:
            index.record_holder(claim)
            index.settle(claim, yields=index.holder(claim).key != claim.key)
        sys.setprofile(None)
        return calls // num_claims

    assert count_calls(1000) < 1.5 * count_calls(100)
