"""Identities that trusted proxies forward in headers."""

import ipaddress

import pytest

from penstock.core.tenants.tenant import Header, Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.proven_identity import ProvenIdentity
from penstock.gateway.tenants.proxy_identity import ProxyIdentities

PROXY, STRANGER = "10.0.0.7", "192.0.2.1"
OLD, YOUNG = ProvenIdentity("old", "proxy"), ProvenIdentity("young", "proxy")


@pytest.fixture
def identities() -> ProxyIdentities:
    made = ProxyIdentities((ipaddress.ip_network("10.0.0.0/24"),))
    made.replace(
        [
            Tenant("old", 1, (Header("proxy", "x-team", "search"),)),
            Tenant(
                "young",
                1,
                (Header("proxy", "x-user", "jürgen"), Header("taken", "x-team", "search")),
            ),
        ]
    )
    return made


@pytest.mark.parametrize(
    ("peer", "headers", "found"),
    [
        (PROXY, [(b"x-team", b"search")], OLD),
        (f"::ffff:{PROXY}", [(b"x-team", b"search")], OLD),
        (PROXY, [(b"x-user", "jürgen".encode())], YOUNG),
        (PROXY, [(b"x-user", "jürgen".encode()), (b"x-team", b"search")], OLD),
        (PROXY, [(b"x-team", b"Search")], None),
        (PROXY, [(b"x-team", b"search,search")], None),
        (PROXY, [(b"x-team", b"")], None),
        (PROXY, [(b"x_team", b"search")], None),
        (PROXY, [(b"x-other", b"search")], None),
        (PROXY, [], None),
        (STRANGER, [(b"x-team", b"search")], None),
        (STRANGER, [(b"x-team", b"search"), (b"x-forwarded-for", PROXY.encode())], None),
        (STRANGER, [(b"x-team", b"search"), (b"x-team", b"search")], None),
        ("", [(b"x-team", b"search")], None),
    ],
)
def test_headers_of_trusted_peers_prove_identities(
    identities: ProxyIdentities,
    peer: str,
    headers: list[tuple[bytes, bytes]],
    found: ProvenIdentity | None,
) -> None:
    assert identities.find(peer, headers) == found


def test_a_header_that_is_there_twice_is_refused(identities: ProxyIdentities) -> None:
    with pytest.raises(RequestError, match="`x-team` is there twice") as refused:
        identities.find(PROXY, [(b"x-team", b"a"), (b"x-team", b"search")])
    assert refused.value.status == 400


def test_without_trusted_proxies_no_header_proves_anything() -> None:
    identities = ProxyIdentities(())
    identities.replace([Tenant("old", 1, (Header("proxy", "x-team", "search"),))])
    assert identities.find("127.0.0.1", [(b"x-team", b"search")]) is None
    assert identities.headers == {b"x-team"}
