"""Finds the identity that the claims of a verified token prove."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.core.tenants.tenant import Jwt
from penstock.gateway.tenants.proven_identity import ProvenIdentity
from penstock.gateway.tenants.unverified_token import audiences_of, strings


class ClaimIndex:
    """The identities with tokens of one issuer. If a token proves several, the first one counts.

    identities: each with the name of its Tenant; those of the oldest Tenant first.
    """

    def __init__(self, identities: Iterable[tuple[str, Jwt]]) -> None:
        # Position and identity by value, for each pair of an audience and a claim
        self._values: dict[tuple[str, str], dict[str, tuple[int, ProvenIdentity]]] = {}
        for position, (tenant, identity) in enumerate(identities):
            values = self._values.setdefault((identity.audience, identity.claim), {})
            values.setdefault(identity.value, (position, ProvenIdentity(tenant, identity.name)))

    def find(self, claims: Mapping[str, Any]) -> ProvenIdentity | None:
        """Return the identity that these claims prove."""
        first = min(self._matches(claims), key=lambda match: match[0], default=None)
        return None if first is None else first[1]

    def _matches(self, claims: Mapping[str, Any]) -> Iterator[tuple[int, ProvenIdentity]]:
        audiences = audiences_of(claims)
        for (audience, claim), values in self._values.items():
            if audience in audiences:
                for value in claim_values(claims, claim):
                    if (match := values.get(value)) is not None:
                        yield match


def claim_values(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The values of a claim that is a string or a list of strings.

    name: of the claim itself, which may have dots as in URLs; else a path to one within objects, such as
    `realm_access.roles`.
    """
    found: Any = claims
    if name in claims:
        found = claims[name]
    else:
        for step in name.split("."):
            found = found.get(step) if isinstance(found, dict) else None
    return strings(found)
