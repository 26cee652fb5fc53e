"""Counts the tenants that may use a model name."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.tenants.tenant import Access, Tenant


@dataclass(frozen=True, slots=True)
class AccessCount:
    """Number of tenants that may use a model name, and whether the cluster has any."""

    allowed: int
    has_tenants: bool


class AccessCounts:
    """Counts the tenants that may use a model name, also those that are suspended."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._has_tenants = False
        # Accesses of each tenant, by namespace
        self._by_namespace: dict[str, list[list[Access]]] = {}
        for tenant in tenants:
            self._has_tenants = True
            found: dict[str, list[Access]] = {}
            for access in tenant.access:
                found.setdefault(access.namespace, []).append(access)
            for namespace, accesses in found.items():
                self._by_namespace.setdefault(namespace, []).append(accesses)

    def count(self, namespace: str, model_name: str) -> AccessCount:
        """Count the tenants that may use the model name of a namespace, on any route."""
        allowed = sum(
            any(each.allows_model(namespace, model_name) for each in accesses)
            for accesses in self._by_namespace.get(namespace, ())
        )
        return AccessCount(allowed, self._has_tenants)
