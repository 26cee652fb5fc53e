"""Identities that several tenants name."""

from itertools import permutations

import pytest

from penstock.core.tenants.identity_claims import claim_holders, claim_of, lost_identities
from penstock.core.tenants.tenant import ApiKeys, Header, Identity, Jwt, ServiceAccount, Tenant

TOKEN = Jwt("sso", "https://idp", "penstock", "org", "acme")


def tenant(name: str, created_s: float, *identities: Identity) -> Tenant:
    return Tenant(name, 1, identities=identities, created_s=created_s)


@pytest.mark.parametrize(
    ("first", "second", "are_same"),
    [
        (ApiKeys("a", "keys"), ApiKeys("b", "keys"), True),
        (ApiKeys("a", "keys"), ApiKeys("a", "other"), False),
        (ServiceAccount("a", "ns", "batch"), ServiceAccount("b", "ns", "batch"), True),
        (ServiceAccount("a", "ns", "batch"), ServiceAccount("a", "batch", "ns"), False),
        (TOKEN, Jwt("b", "https://idp", "penstock", "org", "acme", "https://idp/keys"), True),
        (TOKEN, Jwt("sso", "https://idp", "other", "org", "acme"), False),
        (TOKEN, Jwt("sso", "https://idp", "penstock", "org", "acme2"), False),
        (TOKEN, Jwt("sso", "https://idp", "penstock", "team", "acme"), False),
        (TOKEN, Jwt("sso", "https://idp2", "penstock", "org", "acme"), False),
        (Header("a", "x-tenant", "acme"), Header("b", "x-tenant", "acme"), True),
        (Header("a", "x-tenant", "acme"), Header("a", "x-team", "acme"), False),
        (Header("a", "x-tenant", "acme"), Header("a", "x-tenant", "Acme"), False),
    ],
)
def test_what_is_the_same_proof(first: Identity, second: Identity, are_same: bool) -> None:
    assert (claim_of(first) == claim_of(second)) == are_same


def test_the_older_tenant_has_the_identity_in_any_order() -> None:
    keys, account = ApiKeys("keys", "keys"), ServiceAccount("pods", "ns", "batch")
    old, twin, new = (
        tenant("z", 1.0, keys),
        tenant("b", 2.0, keys, account),
        tenant("a", 3.0, account, TOKEN),
    )
    for tenants in permutations((old, twin, new)):
        holders = claim_holders(tenants)
        assert holders == {claim_of(keys): "z", claim_of(account): "b", claim_of(TOKEN): "a"}
        assert [lost_identities(each, holders) for each in (old, twin, new)] == [
            {}, {"keys": "z"}, {"pods": "b"},
        ]  # fmt: skip


def test_of_two_tenants_of_one_second_the_first_by_name_has_it() -> None:
    tenants = [tenant("b", 1.0, TOKEN), tenant("a", 1.0, TOKEN)]
    assert claim_holders(tenants) == {claim_of(TOKEN): "a"}


def test_a_tenant_that_names_an_identity_twice_has_it() -> None:
    twice = tenant("a", 1.0, ApiKeys("keys", "keys"), ApiKeys("old-keys", "keys"))
    assert lost_identities(twice, claim_holders([twice])) == {}
