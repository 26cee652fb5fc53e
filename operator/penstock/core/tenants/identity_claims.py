"""Which tenant has an identity that several Tenants name: the oldest one."""

from collections.abc import Iterable, Mapping

from penstock.core.tenants.tenant import ApiKeys, Header, Identity, Jwt, ServiceAccount, Tenant

# What a client proves by an identity, whatever the tenant calls it.
Claim = tuple[str, ...]


def claim_of(identity: Identity) -> Claim:
    """What a client proves by an identity."""
    match identity:
        case ApiKeys():
            return ("APIKey", identity.secret)
        case ServiceAccount():
            return ("ServiceAccount", identity.namespace, identity.account)
        case Jwt():
            return ("JWT", identity.issuer, identity.audience, identity.claim, identity.value)
        case Header():
            return ("Header", identity.header, identity.value)


def claim_holders(tenants: Iterable[Tenant]) -> Mapping[Claim, str]:
    """Names of the tenants that have the identities, by what a client proves."""
    holders: dict[Claim, str] = {}
    for tenant in sorted(tenants, key=lambda each: (each.created_s, each.name)):
        for identity in tenant.identities:
            holders.setdefault(claim_of(identity), tenant.name)
    return holders


def lost_identities(tenant: Tenant, holders: Mapping[Claim, str]) -> Mapping[str, str]:
    """Names of the tenant's identities that count for another tenant only, each with that tenant's name."""
    found = {}
    for identity in tenant.identities:
        holder = holders.get(claim_of(identity), tenant.name)
        if holder != tenant.name:
            found[identity.name] = holder
    return found
