"""Decides which tenant has an identity that several Tenants name: the oldest one."""

from collections.abc import Iterable, Mapping

from penstock.core.tenants.tenant import ApiKeys, Header, Identity, Jwt, ServiceAccount, Tenant

# Proof of an identity, without the name that a tenant gives the identity.
Claim = tuple[str, ...]


def claim_of(identity: Identity) -> Claim:
    """The proof of an identity, by which it is compared with those of other tenants."""
    match identity:
        case ApiKeys():
            return ("APIKey", identity.secret)
        case ServiceAccount():
            return ("ServiceAccount", identity.namespace, identity.account)
        case Jwt():
            return ("JWT", identity.issuer, identity.audience, identity.claim, identity.value)
        case Header():
            return ("Header", identity.header, identity.value)


def sort_by_age(tenants: Iterable[Tenant]) -> list[Tenant]:
    """The tenants, the oldest first; those that were created in one second by name."""
    return sorted(tenants, key=lambda each: (each.created_s, each.name))


def held_identities(tenants: Iterable[Tenant]) -> list[tuple[Tenant, Identity]]:
    """The identities that count, each with the tenant that has it; those of the oldest tenant first."""
    held: dict[Claim, tuple[Tenant, Identity]] = {}
    for tenant in sort_by_age(tenants):
        for identity in tenant.identities:
            held.setdefault(claim_of(identity), (tenant, identity))
    return list(held.values())


def claim_holders(tenants: Iterable[Tenant]) -> Mapping[Claim, str]:
    """Names of the tenants that have the identities, by their proofs."""
    return {claim_of(identity): tenant.name for tenant, identity in held_identities(tenants)}


def secret_holders(tenants: Iterable[Tenant]) -> Mapping[str, tuple[Tenant, str]]:
    """The tenants that have the Secrets of API keys, each with its identity's name, by the Secret's name."""
    return {
        identity.secret: (tenant, identity.name)
        for tenant, identity in held_identities(tenants)
        if isinstance(identity, ApiKeys)
    }


def lost_identities(tenant: Tenant, holders: Mapping[Claim, str]) -> Mapping[str, str]:
    """Names of the tenant's identities that count for another tenant only, each with that tenant's name."""
    found = {}
    for identity in tenant.identities:
        holder = holders.get(claim_of(identity), tenant.name)
        if holder != tenant.name:
            found[identity.name] = holder
    return found
