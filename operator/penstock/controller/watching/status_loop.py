"""Keeps the statuses of objects current that the operator only reports on: ModelRoutes and Tenants."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import Resource
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import OPERATOR_MANAGER
from penstock.core.formats.json_merge import if_unchanged
from penstock.errors import Conflict, NotFound

# The objects are compared with what the gateways apply this often, and at once after a change of one.
TICK_S = 2.0


class StatusLoop:
    """Repeats a pass over all objects of a kind. name: of the loop, in logs and metrics. update: the pass."""

    def __init__(
        self, name: str, update: Callable[[], Awaitable[None]], failures: Failures
    ) -> None:
        self._name = name
        self._update = update
        self._failures = failures
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Start the next pass at once, as an object has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run a pass every TICK_S seconds and after each change, until cancelled."""
        while True:
            self._changed.clear()
            with self._failures.isolate_errors(self._name):
                await self._update()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue


async def write_status(kube: Kube, resource: Resource, body: Object, after: Object) -> None:
    """Write a status if a field of it differs. body: the object, as last watched. after: the fields."""
    before = body.get("status", {})
    if {name: before.get(name) for name in after} == after:
        return
    metadata, patch = body["metadata"], if_unchanged(body, {"status": after})
    try:
        await kube.merge(
            resource, metadata.get("namespace"), metadata["name"], patch,
            manager=OPERATOR_MANAGER, sub="status",
        )  # fmt: skip
    except (NotFound, Conflict):
        return  # the object has changed, and its watch event starts another pass
