"""Holds the current routing snapshot, and replaces it when the watched Kubernetes objects change."""

import asyncio
import math
from collections.abc import Callable
from functools import partial

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import (
    EXTERNAL_MODELS,
    INFERENCE_SERVICES,
    LORA_ADAPTERS,
    MODEL_ROUTES,
    PODS,
)
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.change_waiters import ChangeWaiters
from penstock.gateway.snapshots.snapshot import Snapshot

# Time from a change of the demand alone to its snapshot. The operator averages demand over a minute, and
# writes that of thousands of adapters.
DEMAND_DELAY_S = 5.0
# Shortest time from one snapshot to the next. One of 500 services takes 5 ms of the event loop, so objects
# that change all the time cost a tenth of it. The first change after a pause has its snapshot at once.
MIN_INTERVAL_S = 0.05


class SnapshotStore:
    """The current routing snapshot, and ways to wait for another one.

    listeners: called with each new snapshot, before tasks that wait for it go on. informers: those that
    `follow` builds the snapshots from.
    """

    def __init__(self) -> None:
        self.current = Snapshot()
        self.listeners: list[Callable[[Snapshot], None]] = []
        self.informers: tuple[Informer, ...] = ()
        self._synced = asyncio.Event()
        self._waiters = ChangeWaiters()

    @property
    def is_synced(self) -> bool:
        """Whether there has been a snapshot."""
        return self._synced.is_set()

    @property
    def confirmed_s(self) -> float | None:
        """When the API server last confirmed all objects of the snapshot, on the monotonic clock.

        None if nothing is watched.
        """
        return min((each.confirmed_s for each in self.informers), default=None)

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the current snapshot, and wake the tasks whose wait the new one may end.

        An equal one may show another demand for adapters.
        """
        last, self.current = self.current, snapshot
        if self.is_synced and snapshot == last:
            return
        self._synced.set()
        for listener in self.listeners:
            listener(snapshot)
        self._waiters.wake(
            key
            for key in self._waiters.keys
            if _routing_inputs(last, *key) != _routing_inputs(snapshot, *key)
        )

    async def wait_for_first(self, timeout_s: float) -> bool:
        """Wait for the first snapshot. Returns False if there is none within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._synced.wait()
        except TimeoutError:
            return False

    async def wait_for_change(self, service: str, timeout_s: float, *, adapter: str = "") -> bool:
        """Wait for a change of a service's engines, or of the reason why it has none.

        service: "namespace/name". adapter: likewise, of the one that is asked for, which may move to another
        service; empty: the base model is. Returns False if nothing changes within `timeout_s`, and True also
        for an earlier change whose wake-up was still due. Other services do not end the wait: to wake a
        thousand requests takes 20 ms of the event loop.
        """
        return await self._waiters.wait((service, adapter), timeout_s)

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


def _routing_inputs(snapshot: Snapshot, key: str, adapter: str) -> tuple[object, ...]:
    """Return the parts of a snapshot that determine to which engines a request may be sent.

    key: of the service. adapter: key of the one that is asked for; empty: the base model is.
    """
    service, found = snapshot.get(key), snapshot.get_adapter(adapter)
    serving = None if found is None else found.service
    if service is None:
        return (serving,)
    return (
        serving,
        service.weights,
        service.endpoints,
        service.lora_engines,
        service.stalled,
        service.is_scaled_to_zero,
        service.wakes_in_s is None,
    )


class _Follower:
    """Publishes a snapshot after changes of the watched objects.

    watch: makes an informer of a resource.
    """

    def __init__(self, watch: Callable[..., Informer], publish: Callable[[Snapshot], None]) -> None:
        self._publish = publish
        self._builder = SnapshotBuilder()
        self._timer: asyncio.TimerHandle | None = None
        self._published_s = -math.inf
        self._demand_changed = asyncio.Event()
        selector = f"{SERVICE_LABEL},{ROLE_LABEL}={SERVE}"
        services, routes = (
            watch(resource, changed=self._schedule)
            for resource in (INFERENCE_SERVICES, MODEL_ROUTES)
        )
        pods = watch(PODS, selector=selector, changed=self._schedule)
        self._adapters = watch(LORA_ADAPTERS, changed=self._note_adapter, is_optional=True)
        externals = watch(EXTERNAL_MODELS, changed=self._schedule, is_optional=True)
        self.informers = services, pods, routes, self._adapters, externals

    async def run(self) -> None:
        """Watch the objects until cancelled."""
        try:
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
        finally:
            self._cancel_timer()

    def _schedule(self, _: Key) -> None:
        """Make one snapshot for all events that arrive together, or within MIN_INTERVAL_S of the last one."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            at_s = max(loop.time(), self._published_s + MIN_INTERVAL_S)
            self._timer = loop.call_at(at_s, self._rebuild)

    def _note_adapter(self, key: Key) -> None:
        body = self._adapters.get(key)
        change = "Other" if body is None else self._builder.adapters.find_change(body)
        if change == "Demand":
            self._demand_changed.set()
        elif change == "Other":
            self._schedule(key)

    def _rebuild(self) -> None:
        self._cancel_timer()
        if all(mirror.synced.is_set() for mirror in self.informers):
            self._publish(self._builder.build(*self.informers))
            self._published_s = asyncio.get_running_loop().time()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
