"""Holds the tenants of the cluster, as the API server lists them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from penstock.api.conversion.tenants import to_tenant
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer
from penstock.clients.kubernetes.resources import TENANTS
from penstock.clients.machine.clock import monotonic
from penstock.core.tenants.identity_claims import sort_by_age
from penstock.core.tenants.tenant import Tenant
from penstock.gateway.tenants.tenant_set import TenantSet

logger = logging.getLogger(__name__)

# Interval at which the gateway looks whether it may open, while nothing changes.
CHECK_INTERVAL_S = 1.0
# Time for which the API server must have no Tenant, or no such kind, before the gateway opens. Who deletes
# the CRD deletes all Tenants a moment before, and an API server that has just started answers as if there
# was no such kind for a second or two.
OPEN_DELAY_S = 10.0


class TenantRegistry:
    """The present tenants. current: None before they are known, while nobody may be let in.

    listeners: called with each new set. now: the monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self.current: TenantSet | None = None
        self.listeners: list[Callable[[TenantSet], None]] = []
        self._now = now
        self._read: dict[str, tuple[Object, Tenant]] = {}
        # Since when the API server has no Tenant, or no such kind; None: it has some.
        self._none_since_s: float | None = None

    @property
    def generations(self) -> Mapping[str, int]:
        """Generation of the spec that the gateway applies, by tenant."""
        current = self.current
        return {} if current is None else {each.name: each.generation for each in current.tenants}

    def publish(self, tenants: Iterable[Tenant], *, is_open: bool = False) -> None:
        """Replace all tenants. tenants: the oldest first. is_open: whether anybody is let in."""
        found = TenantSet(tuple(tenants), is_open)
        if found == self.current:
            return
        self.current = found
        for listener in self.listeners:
            listener(found)

    async def follow(self, kube: Kube, restarted: Callable[[str], None] = lambda _: None) -> None:
        """Watch the Tenants until cancelled. Without the API server the last known ones stay.

        restarted: called each time that they are listed again.
        """
        changed = asyncio.Event()
        informer = Informer(
            kube, TENANTS, changed=lambda _: changed.set(), restarted=restarted, is_optional=True
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            while True:
                changed.clear()
                self.update(informer)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_INTERVAL_S):
                        await changed.wait()

    def update(self, informer: Informer) -> None:
        """Publish the Tenants that the informer has.

        While the gateway may not list them, the last known ones stay. They also stay if the kind has gone:
        neither opens a gateway that had tenants.
        """
        had_tenants = self.current is not None and not self.current.is_open
        if informer.is_denied or (informer.is_absent and had_tenants):
            return
        tenants = self._read_all(informer)
        if tenants:
            self._none_since_s = None
            self.publish(tenants, is_open=False)
        elif not (had_tenants or informer.is_absent) or self._is_empty_for_long(informer):
            self.publish((), is_open=True)
        elif had_tenants:
            self.publish((), is_open=False)

    def _is_empty_for_long(self, informer: Informer) -> bool:
        """Whether the API server has confirmed for OPEN_DELAY_S that there is no Tenant, or no such kind."""
        if self._none_since_s is None:
            self._none_since_s = self._now()
        return informer.confirmed_s - self._none_since_s >= OPEN_DELAY_S

    def _read_all(self, bodies: Iterable[Object]) -> list[Tenant]:
        """Read the objects, the oldest first. Only new bodies are read."""
        last, self._read = self._read, {}
        for body in bodies:
            name = body["metadata"]["name"]
            old = last.get(name)
            if old is None or old[0] is not body:
                old = body, self._read_one(body, old and old[1])
            self._read[name] = old
        return sort_by_age(tenant for _, tenant in self._read.values())

    def _read_one(self, body: Object, last: Tenant | None) -> Tenant:
        """Read an object. One that cannot be read stays as it was, and without that it may do nothing."""
        try:
            return to_tenant(body)
        except ValueError as error:
            logger.error("%s", error)
            return last or Tenant(body["metadata"]["name"], 0)
