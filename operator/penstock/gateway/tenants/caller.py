"""The caller of a request: its tenant, and how the client proved to belong to it."""

from dataclasses import dataclass

from penstock.core.tenants.tenant import BATCH_PRIORITY, Tenant


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller of a request.

    tenant: None while the gateway is open, as the cluster has no Tenant. identity: name of the tenant's
    identity that the client proved. key: id of the API key that it sent; empty if it proved another identity.
    is_batch: whether the request is a line of a batch.
    """

    tenant: Tenant | None = None
    identity: str = ""
    key: str = ""
    is_batch: bool = False

    @property
    def name(self) -> str:
        """Name of the tenant; empty while the gateway is open."""
        return "" if self.tenant is None else self.tenant.name

    @property
    def priority(self) -> int:
        """Class of its requests: a higher one is served first and shed last."""
        if self.is_batch:
            return BATCH_PRIORITY
        return 0 if self.tenant is None else self.tenant.priority

    @property
    def fair_share_weight(self) -> int:
        """Its share among the tenants of a priority."""
        return 1 if self.tenant is None else self.tenant.fair_share_weight


# The caller of every request while the gateway is open.
ANYONE = Caller()
