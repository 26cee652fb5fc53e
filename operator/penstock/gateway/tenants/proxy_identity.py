"""Finds the identity that a trusted proxy forwards in a header."""

from collections.abc import Iterable

from penstock.core.routing.forwarded_client import Network, is_trusted_proxy
from penstock.core.tenants.identity_claims import held_identities
from penstock.core.tenants.tenant import Header, Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.proven_identity import ProvenIdentity

RawHeaders = Iterable[tuple[bytes, bytes]]


class ProxyIdentities:
    """The identities in headers of trusted proxies.

    trusted: networks of these proxies. headers: names of the headers, which engines do not get.
    """

    def __init__(self, trusted: tuple[Network, ...]) -> None:
        self._trusted = trusted
        self.headers: frozenset[bytes] = frozenset()
        # Identities with their positions, by header and value; those of the oldest Tenant first
        self._identities: dict[bytes, dict[bytes, tuple[int, ProvenIdentity]]] = {}

    def replace(self, tenants: Iterable[Tenant]) -> None:
        """Set the Tenants. An identity that several name counts for the oldest."""
        found: dict[bytes, dict[bytes, tuple[int, ProvenIdentity]]] = {}
        for position, (tenant, identity) in enumerate(held_identities(tenants)):
            if isinstance(identity, Header):
                values = found.setdefault(identity.header.encode(), {})
                proven = ProvenIdentity(tenant.name, identity.name)
                values[identity.value.encode()] = position, proven
        self._identities = found
        self.headers = frozenset(found)

    def find(self, peer: str, headers: RawHeaders) -> ProvenIdentity | None:
        """Return the identity in a request's headers. If there are several, that of the oldest Tenant counts.

        peer: address of the other end of the connection, whatever X-Forwarded-For says.
        Raises RequestError if a header is there twice: the client's own could be beside the proxy's.
        """
        if not self._identities or not is_trusted_proxy(peer, self._trusted):
            return None
        given: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in self._identities:
                if name in given:
                    raise RequestError(
                        400,
                        f"the header `{name.decode()}` is there twice; the proxy must replace the client's",
                    )
                given[name] = value
        found = [
            match
            for name, value in given.items()
            if (match := self._identities[name].get(value)) is not None
        ]
        return min(found, key=lambda match: match[0])[1] if found else None
