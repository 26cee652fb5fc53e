"""Holds the current routing snapshot, and replaces it when the watched Kubernetes objects change."""

import asyncio
from collections.abc import Callable
from functools import partial

from penstock.clients.informer import Informer, Key
from penstock.clients.kube import Kube
from penstock.clients.resources import INFERENCE_SERVICES, LORA_ADAPTERS, MODEL_ROUTES, PODS
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.gateway.snapshot import Snapshot
from penstock.gateway.snapshot_builder import SnapshotBuilder


class SnapshotStore:
    """The current routing snapshot, and a way to wait for the next one.

    is_synced: whether there has been a snapshot. listeners: called with each new snapshot, before tasks
    that wait for it go on. informers: those that `follow` builds the snapshots from.
    """

    def __init__(self) -> None:
        self.current = Snapshot()
        self.is_synced = False
        self.listeners: list[Callable[[Snapshot], None]] = []
        self.informers: tuple[Informer, ...] = ()
        self._changed = asyncio.Event()

    @property
    def confirmed_s(self) -> float | None:
        """When the API server last confirmed all objects of the snapshot, on the monotonic clock.

        None if nothing is watched.
        """
        return min((each.confirmed_s for each in self.informers), default=None)

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

    async def follow(
        self,
        kube: Kube,
        namespace: str | None,
        restarted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Watch the API server and publish a snapshot after each change, until cancelled.

        namespace: the one to watch; None: all. restarted: called with a kind each time that it is listed
        again.
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
            if all(mirror.synced.is_set() for mirror in self.informers):
                self.publish(builder.build(services, pods, routes, adapters))

        def adapter_changed(key: Key) -> None:
            body = adapters.get(key)
            if body is None or not builder.adapters.reads_as_before(body):
                changed(key)

        selector = f"{SERVICE_LABEL},{ROLE_LABEL}={SERVE}"
        watch = partial(Informer, kube, namespace=namespace, changed=changed, restarted=restarted)
        services, routes = watch(INFERENCE_SERVICES), watch(MODEL_ROUTES)
        pods = watch(PODS, selector=selector)
        adapters = watch(LORA_ADAPTERS, changed=adapter_changed, is_optional=True)
        self.informers = (services, pods, routes, adapters)
        async with asyncio.TaskGroup() as group:
            for mirror in self.informers:
                group.create_task(mirror.run())
            for mirror in self.informers:
                await mirror.synced.wait()
            rebuild()  # an empty cluster gives no event
