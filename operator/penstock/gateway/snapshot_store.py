"""Holds the current routing snapshot, and replaces it when the watched Kubernetes objects change."""

import asyncio
from collections.abc import Callable

from penstock.clients.informer import Informer, Key
from penstock.clients.kube import Kube
from penstock.clients.resources import INFERENCE_SERVICES, MODEL_ROUTES, PODS
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.gateway.snapshot import Snapshot
from penstock.gateway.snapshot_builder import SnapshotBuilder


class SnapshotStore:
    """The current routing snapshot, and a way to wait for the next one.

    is_synced: whether there has been a snapshot. listeners: called with each new snapshot, before tasks
    that wait for it go on.
    """

    def __init__(self) -> None:
        self.current = Snapshot()
        self.is_synced = False
        self.listeners: list[Callable[[Snapshot], None]] = []
        self._changed = asyncio.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the current snapshot, and wake all waiting tasks if the new one differs."""
        if self.is_synced and snapshot == self.current:
            return
        self.current, self.is_synced = snapshot, True
        for listener in self.listeners:
            listener(snapshot)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait for the next snapshot. Returns False if there is none within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._changed.wait()
        except TimeoutError:
            return False

    async def follow(self, kube: Kube, namespace: str | None) -> None:
        """Watch the API server and publish a snapshot after each change, until cancelled.

        namespace: the one to watch; None: all.
        """
        loop = asyncio.get_running_loop()
        builder = SnapshotBuilder()
        is_scheduled = False

        def changed(_: Key) -> None:
            nonlocal is_scheduled
            if not is_scheduled:  # one snapshot for all events that arrived together
                is_scheduled = True
                loop.call_soon(rebuild)

        def rebuild() -> None:
            nonlocal is_scheduled
            is_scheduled = False
            if all(mirror.synced.is_set() for mirror in (services, pods, routes)):
                self.publish(builder.build(services, pods, routes))

        selector = f"{SERVICE_LABEL},{ROLE_LABEL}={SERVE}"
        services = Informer(kube, INFERENCE_SERVICES, namespace=namespace, changed=changed)
        pods = Informer(kube, PODS, namespace=namespace, selector=selector, changed=changed)
        routes = Informer(kube, MODEL_ROUTES, namespace=namespace, changed=changed)
        async with asyncio.TaskGroup() as group:
            for mirror in (services, pods, routes):
                group.create_task(mirror.run())
            for mirror in (services, pods, routes):
                await mirror.synced.wait()
            rebuild()  # an empty cluster gives no event
