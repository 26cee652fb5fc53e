"""Mirrors the Deployments and pods of all services."""

import asyncio
from collections.abc import Callable

from penstock.clients.kube import Kube, Object
from penstock.clients.resources import DEPLOYMENTS, PODS, Resource
from penstock.clients.watch import Key, Mirror
from penstock.core.spec.service import MANAGED_BY, MANAGED_LABEL, SERVICE_LABEL


class Children:
    """Deployments and pods of all services.

    changed: called with the service of each child that is added, changed or deleted, whether that
    was seen by a watch or by a new list after the watch broke.
    """

    def __init__(self, kube: Kube, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._deployments = self._mirror(kube, DEPLOYMENTS)
        self._pods = self._mirror(kube, PODS)

    async def run(self) -> None:
        """Follows both kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deployments.run())
            group.create_task(self._pods.run())

    def known(self) -> tuple[list[Object], list[Object]]:
        """All Deployments and pods; empty until both kinds have been listed."""
        if not (self._deployments.synced.is_set() and self._pods.synced.is_set()):
            return [], []
        return list(self._deployments), list(self._pods)

    def _mirror(self, kube: Kube, resource: Resource) -> Mirror:
        services: dict[Key, Key] = {}

        def changed(key: Key) -> None:
            # A deleted child is no longer in the mirror: `services` remembers whose it was.
            child = mirror.get(key)
            service = services.pop(key, None)
            if child is not None:
                service = key[0], child["metadata"]["labels"].get(SERVICE_LABEL, "")
                services[key] = service
            if service is not None and service[1]:
                self._changed(service)

        mirror = Mirror(kube, resource, selector=f"{MANAGED_LABEL}={MANAGED_BY}", changed=changed)
        return mirror
