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

# Time from a change of the demand alone to its snapshot. The operator averages demand over a minute, and
# writes that of thousands of adapters.
DEMAND_DELAY_S = 5.0


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
        """Replace the current snapshot, and wake all waiting tasks if the new one differs.

        An equal one may show another demand for adapters.
        """
        is_equal = self.is_synced and snapshot == self.current
        self.current, self.is_synced = snapshot, True
        if is_equal:
            return
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
        follower = _Follower(
            partial(Informer, kube, namespace=namespace, restarted=restarted), self.publish
        )
        self.informers = follower.informers
        await follower.run()


class _Follower:
    """Publishes a snapshot after each change of the watched objects.

    watch: makes an informer of a resource.
    """

    def __init__(self, watch: Callable[..., Informer], publish: Callable[[Snapshot], None]) -> None:
        self._publish = publish
        self._builder = SnapshotBuilder()
        self._is_scheduled = False
        self._demand_changed = asyncio.Event()
        selector = f"{SERVICE_LABEL},{ROLE_LABEL}={SERVE}"
        services, routes = (
            watch(resource, changed=self._schedule)
            for resource in (INFERENCE_SERVICES, MODEL_ROUTES)
        )
        pods = watch(PODS, selector=selector, changed=self._schedule)
        self._adapters = watch(LORA_ADAPTERS, changed=self._note_adapter, is_optional=True)
        self.informers = services, pods, routes, self._adapters

    async def run(self) -> None:
        """Watch the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in self.informers:
                group.create_task(mirror.run())
            for mirror in self.informers:
                await mirror.synced.wait()
            self._rebuild()  # an empty cluster gives no event
            while await self._demand_changed.wait():
                await asyncio.sleep(DEMAND_DELAY_S)
                self._demand_changed.clear()
                self._rebuild()

    def _schedule(self, _: Key) -> None:
        """Make one snapshot for all events that arrived together."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def _note_adapter(self, key: Key) -> None:
        body = self._adapters.get(key)
        change = "Other" if body is None else self._builder.adapters.find_change(body)
        if change == "Demand":
            self._demand_changed.set()
        elif change == "Other":
            self._schedule(key)

    def _rebuild(self) -> None:
        self._is_scheduled = False
        if all(mirror.synced.is_set() for mirror in self.informers):
            self._publish(self._builder.build(*self.informers))
