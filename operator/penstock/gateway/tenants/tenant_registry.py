"""Holds the tenants of the cluster, as the API server lists them."""

import logging
from collections.abc import Callable, Iterable, Mapping

from penstock.core.tenants.tenant import Tenant
from penstock.gateway.tenants.tenant_set import TenantSet

logger = logging.getLogger(__name__)


class TenantRegistry:
    """The present tenants. current: None before the first list, while nobody may be let in.

    listeners: called with each new set.
    """

    def __init__(self) -> None:
        self.current: TenantSet | None = None
        self.listeners: list[Callable[[TenantSet], None]] = []

    @property
    def is_synced(self) -> bool:
        """Whether the tenants are known."""
        return self.current is not None

    @property
    def generations(self) -> Mapping[str, int]:
        """Generation of the spec that the gateway applies, by tenant."""
        current = self.current
        return {} if current is None else {each.name: each.generation for each in current.tenants}

    def publish(self, tenants: Iterable[Tenant]) -> None:
        """Replace all tenants. tenants: the oldest first."""
        self.current = TenantSet(tuple(tenants))
        for listener in self.listeners:
            listener(self.current)
