"""The picture of what there is to send requests to: immutable, replaced at each change."""

import asyncio
from collections.abc import Callable

from penstock.clients.kube import Kube
from penstock.clients.resources import INFERENCE_SERVICES, MODEL_ROUTES, PODS
from penstock.clients.watch import Key, Mirror
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.gateway.drawing import SnapshotBuilder
from penstock.gateway.snapshot import Snapshot


class Fleet:
    """The current snapshot, and a way to wait for the next. listeners: told of each, before those who
    wait."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.is_synced = False
        self.listeners: list[Callable[[Snapshot], None]] = []
        self._changed = asyncio.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the picture, and wake whoever waits when it differs."""
        if self.is_synced and snapshot == self.snapshot:
            return
        self.snapshot, self.is_synced = snapshot, True
        for listener in self.listeners:
            listener(snapshot)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        """True at the next change, False when there was none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._changed.wait()
        except TimeoutError:
            return False

    async def follow(self, kube: Kube, namespace: str | None) -> None:
        """Keep the picture as the API server has it. Until cancelled."""
        loop = asyncio.get_running_loop()
        builder = SnapshotBuilder()
        is_due = False

        def changed(_: Key) -> None:
            nonlocal is_due
            if not is_due:  # one picture for all events that came together
                is_due = True
                loop.call_soon(draw)

        def draw() -> None:
            nonlocal is_due
            is_due = False
            if all(mirror.synced.is_set() for mirror in (services, pods, routes)):
                self.publish(builder.build(services, pods, routes))

        selector = f"{SERVICE_LABEL},{ROLE_LABEL}={SERVE}"
        services = Mirror(kube, INFERENCE_SERVICES, namespace=namespace, changed=changed)
        pods = Mirror(kube, PODS, namespace=namespace, selector=selector, changed=changed)
        routes = Mirror(kube, MODEL_ROUTES, namespace=namespace, changed=changed)
        async with asyncio.TaskGroup() as group:
            for mirror in (services, pods, routes):
                group.create_task(mirror.run())
            for mirror in (services, pods, routes):
                await mirror.synced.wait()
            draw()  # also when there is nothing yet
