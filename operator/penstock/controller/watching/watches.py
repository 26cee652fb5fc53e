"""The leader's informers: services, their children, gateway pods, ResourceQuotas, disruption budgets."""

import asyncio
from collections.abc import Callable

from penstock.chart.names import GATEWAY
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key, key_of
from penstock.clients.kubernetes.resources import (
    DISRUPTION_BUDGETS,
    INFERENCE_SERVICES,
    PODS,
    RESOURCE_QUOTAS,
    Resource,
)
from penstock.controller.process.settings import Settings
from penstock.controller.watching.child_mirror import ChildMirror


class Watches:
    """Informers that list and watch the objects that the leader reads.

    child_changed: called with the service's key after each change of one of its children. service_changed:
    called with each service that is added, changed or deleted; None for a deleted one. restarted: called with
    the kind of objects after a watch failed, before they are listed again.
    """

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        child_changed: Callable[[Key], None],
        service_changed: Callable[[Key, Object | None], None],
        restarted: Callable[[str], None],
    ) -> None:
        def watch(
            resource: Resource,
            namespace: str | None,
            selector: str = "",
            changed: Callable[[Key], None] = lambda _: None,
        ) -> Informer:
            return Informer(
                kube,
                resource,
                namespace=namespace,
                selector=selector,
                changed=changed,
                restarted=restarted,
            )

        watched = settings.watch_namespace
        self.children = ChildMirror(kube, child_changed, restarted, namespace=watched)
        self.quotas = watch(RESOURCE_QUOTAS, watched)
        self._budgets = watch(DISRUPTION_BUDGETS, watched)
        self._gateways = watch(PODS, settings.namespace, f"app.kubernetes.io/name={GATEWAY}")
        # Kopf watches services too, but does not report when it has listed all of them.
        self._services = watch(
            INFERENCE_SERVICES,
            watched,
            changed=lambda key: service_changed(key, self._services.get(key)),
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start all watches as tasks of the group."""
        for each in (
            self._gateways, self.quotas, self._budgets, self._services, self.children
        ):  # fmt: skip
            group.create_task(each.run())

    def gateways(self) -> Informer | None:
        """The gateways' pods; None until they have been listed."""
        return self._gateways if self._gateways.synced.is_set() else None

    async def budgets(self, namespace: str) -> list[Object]:
        """The PodDisruptionBudgets of a namespace. Waits until they have been listed."""
        await self._budgets.synced.wait()
        return [each for each in self._budgets if each["metadata"]["namespace"] == namespace]

    @property
    def are_services_listed(self) -> bool:
        return self._services.synced.is_set()

    def services(self) -> dict[Key, Object] | None:
        """All services; None until they have been listed."""
        if not self.are_services_listed:
            return None
        return {key_of(each): each for each in self._services}

    def deployments(self) -> list[Object] | None:
        """The Deployments of all services; None until the children have been listed."""
        return self.children.snapshot()[0] if self.children.is_synced else None
