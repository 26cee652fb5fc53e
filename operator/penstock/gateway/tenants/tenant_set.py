"""The tenants of a cluster at one moment, and the ones that own what clients prove."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.tenants.tenant import ApiKeys, Tenant


@dataclass(frozen=True, slots=True)
class TenantSet:
    """All tenants, the oldest first: of two with the same identity the older one has it.

    is_open: whether the cluster has no Tenant, so that anybody is let in. by_name: the tenants. by_secret:
    the tenant of each Secret of API keys, and the name of the identity.
    """

    tenants: tuple[Tenant, ...] = ()
    is_open: bool = False
    by_name: Mapping[str, Tenant] = field(init=False, repr=False, compare=False)
    by_secret: Mapping[str, tuple[Tenant, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {each.name: each for each in self.tenants})
        by_secret: dict[str, tuple[Tenant, str]] = {}
        for tenant in self.tenants:
            for identity in tenant.identities:
                if isinstance(identity, ApiKeys):
                    by_secret.setdefault(identity.secret, (tenant, identity.name))
        object.__setattr__(self, "by_secret", by_secret)
