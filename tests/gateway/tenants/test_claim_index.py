"""Which identity the claims of a verified token prove."""

from typing import Any

import pytest

from penstock.core.tenants.tenant import Jwt
from penstock.gateway.tenants.claim_index import ClaimIndex, claim_values
from penstock.gateway.tenants.proven_identity import ProvenIdentity

CLAIMS = {
    "sub": "user-1",
    "groups": ["a", "b", 3, None],
    "realm_access": {"roles": ["r1"], "deep": {"er": "x"}},
    "https://example.com/teams": ["t"],
    "realm_access.shadowed": "by name",
    "number": 3,
    "flag": True,
}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sub", ("user-1",)),
        ("groups", ("a", "b")),
        ("realm_access.roles", ("r1",)),
        ("realm_access.deep.er", ("x",)),
        ("https://example.com/teams", ("t",)),
        ("realm_access.shadowed", ("by name",)),
        ("realm_access", ()),
        ("groups.0", ()),
        ("sub.x", ()),
        ("number", ()),
        ("flag", ()),
        ("absent", ()),
        ("", ()),
        (".", ()),
    ],
)
def test_claims_are_strings_or_lists_by_name_or_path(name: str, values: tuple[str, ...]) -> None:
    assert claim_values(CLAIMS, name) == values


def identity(name: str, claim: str, value: str, audience: str = "aud") -> Jwt:
    return Jwt(name, "https://issuer", audience, claim, value)


INDEX = ClaimIndex(
    [
        ("old", identity("of-b", "groups", "b")),
        ("middle", identity("of-a", "groups", "a")),
        ("middle", identity("of-user", "sub", "user-1", "other")),
        ("young", identity("takes-b", "groups", "b")),
        ("young", identity("of-c", "groups", "c")),
    ]
)


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ({"aud": "aud", "groups": ["a", "b"]}, ("old", "of-b")),  # the older Tenant's
        ({"aud": "aud", "groups": "a"}, ("middle", "of-a")),
        ({"aud": ["x", "aud"], "groups": ["c"]}, ("young", "of-c")),
        ({"aud": ["aud", "other"], "groups": ["c"], "sub": "user-1"}, ("middle", "of-user")),
        ({"aud": "aud", "groups": ["d"], "sub": "user-1"}, None),  # of another audience
        ({"aud": "au", "groups": ["a"]}, None),
        ({"aud": {"aud": 1}, "groups": ["a"]}, None),
        ({"groups": ["a"]}, None),
        ({"aud": "aud"}, None),
    ],
)
def test_the_first_identity_of_the_audience_counts(
    claims: dict[str, Any], found: tuple[str, str] | None
) -> None:
    assert INDEX.find(claims) == (None if found is None else ProvenIdentity(*found))
