"""Local copy of all services' Deployments and pods, kept current by watches."""

import asyncio
from collections.abc import Callable

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import DEPLOYMENTS, PODS, Resource
from penstock.core.spec.service import MANAGED_BY, MANAGED_LABEL, SERVICE_LABEL


class ChildMirror:
    """Local copy of the Deployments and pods that Penstock manages.

    changed: called with the service's key for each child that is added, changed or deleted, no matter
    whether a watch event or a new list after a broken watch showed it. restarted: called with the kind
    each time that it is listed again. namespace: None for all.
    """

    def __init__(
        self,
        kube: Kube,
        changed: Callable[[Key], None],
        restarted: Callable[[str], None] = lambda _: None,
        *,
        namespace: str | None = None,
    ) -> None:
        self._namespace = namespace
        self._changed = changed
        self._restarted = restarted
        self._deployments = self._mirror(kube, DEPLOYMENTS)
        self._pods = self._mirror(kube, PODS)

    async def run(self) -> None:
        """Watch both kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deployments.run())
            group.create_task(self._pods.run())

    @property
    def is_synced(self) -> bool:
        """Whether both kinds have been listed."""
        return self._deployments.synced.is_set() and self._pods.synced.is_set()

    def snapshot(self) -> tuple[list[Object], list[Object]]:
        """All Deployments and pods; empty until both kinds have been listed."""
        if not self.is_synced:
            return [], []
        return list(self._deployments), list(self._pods)

    def _mirror(self, kube: Kube, resource: Resource) -> Informer:
        services: dict[Key, Key] = {}

        def changed(key: Key) -> None:
            # A deleted child has left the mirror: `services` holds the service that it belonged to.
            child = mirror.get(key)
            service = services.pop(key, None)
            if child is not None:
                service = key[0], child["metadata"]["labels"].get(SERVICE_LABEL, "")
                services[key] = service
            if service is not None and service[1]:
                self._changed(service)

        mirror = Informer(
            kube,
            resource,
            namespace=self._namespace,
            selector=f"{MANAGED_LABEL}={MANAGED_BY}",
            changed=changed,
            restarted=self._restarted,
        )
        return mirror
