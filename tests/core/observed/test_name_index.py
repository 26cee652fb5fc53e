"""Which of several objects gets a model name."""

import sys
from collections.abc import Collection, Iterable
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
    order_in_namespace,
    order_of_namespaces,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex

PENDING, REFUSED = Precedence(Standing.PENDING), Precedence(Standing.REFUSED)
PROD = NameClaim("InferenceService", "prod", "chat", "chat", 100)
EVIL = NameClaim("InferenceService", "evil", "chat", "chat", 200)


def holder_of(*claims: NameClaim) -> str:
    """The namespace that has the short name, whatever the order of the claims."""
    found = {
        NameIndex(each).short_name_holder(each[0]).namespace for each in (claims, claims[::-1])
    }
    (namespace,) = found
    return namespace


def holder_in_namespace(*claims: NameClaim) -> NameClaim:
    """The claim that has the name in the namespace of the first claim."""
    return NameIndex(claims).holder(claims[0])


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
    assert NameIndex((PROD, EVIL, front)).short_name_holder(EVIL) == front
    assert holder_of(replace(PROD, created_s=250), EVIL, front) == "evil"


def test_precedence_within_a_namespace() -> None:
    route, service, adapter = (
        NameClaim(kind, "n", kind.lower(), "m", 9 - i) for i, kind in enumerate(CLAIM_KINDS)
    )
    assert holder_in_namespace(adapter, service, route) == route
    assert holder_in_namespace(adapter, service) == service
    assert holder_in_namespace(adapter, replace(service, precedence=PENDING)) == adapter
    younger = replace(service, name="younger", created_s=99)
    assert holder_in_namespace(younger, service) == service
    yielding = replace(service, precedence=Precedence(yields=True))
    assert holder_in_namespace(younger, yielding) == younger


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
    before = NameIndex(claims).short_name_holder(claims[0])
    newcomer = replace(newcomer, namespace="z", created_s=10)
    if before.precedence != ESTABLISHED:
        newcomer = replace(newcomer, precedence=Precedence(Standing.TERMINATING, yields_short=True))
    after = NameIndex([*claims, newcomer])
    assert after.short_name_holder(newcomer) == before
    assert after.holder(newcomer) == newcomer
    for each in claims:
        assert after.holder(each) == NameIndex(claims).holder(each)


def first_in_namespace(rivals: Iterable[NameClaim], namespace: str) -> NameClaim:
    """The claim that gets the name in a namespace: the first of all claims there."""
    found = (each for each in rivals if each.namespace == namespace)
    return min(found, key=order_in_namespace)


def first_of_all(rivals: Collection[NameClaim]) -> NameClaim:
    """The claim that gets the short name: of the first namespace, the first."""
    return first_in_namespace(rivals, min(rivals, key=order_of_namespaces).namespace)


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
    built = NameIndex(claims)
    for each in (*last.values(), own):
        rivals = (last | {each.key: each}).values()
        assert index.short_name_holder(each) == first_of_all(rivals)
        assert built.short_name_holder(each) == first_of_all(rivals)
        assert index.holder(each) == first_in_namespace(rivals, each.namespace)
        assert built.holder(each) == first_in_namespace(rivals, each.namespace)
        of_kind = [rival for rival in rivals if rival.kind == each.kind]
        assert index.holder(each, kinds=(each.kind,)) == first_in_namespace(of_kind, each.namespace)
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
    """The conflict that an object's status states, and the holder of its name in its namespace."""
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


def test_a_decision_about_a_deleted_object_gives_it_no_name() -> None:
    """A reconcile may decide the name of an object that is deleted in the meantime."""
    younger = replace(PROD, name="second", created_s=150, precedence=PENDING)
    names = NameIndex((PROD, younger))
    names.remove(PROD.key)
    names.settle(PROD, yields=False)
    assert names.holder(younger) == younger
    again = replace(PROD, created_s=300, precedence=PENDING)  # created again with the same name
    names.put(again)
    names.settle(PROD, yields=False)
    assert names.get(PROD.key) == again


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
