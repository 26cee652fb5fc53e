"""Deployments and pods of all services, as the API server has them."""

import asyncio
from collections.abc import Callable

from penstock.adapters.kube import Kube, Object
from penstock.adapters.resources import DEPLOYMENTS, PODS, Resource
from penstock.adapters.watch import Key, Mirror
from penstock.core.service import MANAGED_BY, MANAGED_LABEL, SERVICE_LABEL


class Children:
    """changed: told the service of each child that comes, changes or goes, whether a watch said so or a
    list after it broke."""

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
        """Deployments and pods; none before both are known."""
        if not (self._deployments.synced.is_set() and self._pods.synced.is_set()):
            return [], []
        return list(self._deployments), list(self._pods)

    def _mirror(self, kube: Kube, resource: Resource) -> Mirror:
        services: dict[Key, Key] = {}

        def changed(key: Key) -> None:
            # A child that was deleted is not in the mirror any more.
            child = mirror.get(key)
            service = services.pop(key, None)
            if child is not None:
                service = key[0], child["metadata"]["labels"].get(SERVICE_LABEL, "")
                services[key] = service
            if service is not None and service[1]:
                self._changed(service)

        mirror = Mirror(kube, resource, selector=f"{MANAGED_LABEL}={MANAGED_BY}", changed=changed)
        return mirror
