"""The tenants of a cluster at one moment, by name and by the Secrets of their API keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.tenants.identity_claims import secret_holders
from penstock.core.tenants.tenant import Tenant


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
        object.__setattr__(self, "by_secret", secret_holders(self.tenants))
