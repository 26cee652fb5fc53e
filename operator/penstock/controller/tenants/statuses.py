"""Writes the status of all Tenants, as tenants and gateways change."""

import asyncio
from collections.abc import Callable, Mapping

from penstock.api.conversion.tenants import to_tenant
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import TENANTS
from penstock.clients.machine.clock import unix_time
from penstock.controller.process.failures import Failures
from penstock.controller.watching.status_loop import StatusLoop, write_status
from penstock.core.formats.timestamps import timestamp
from penstock.core.reconcile.tenants.tenant_status import TenantInputs, tenant_status
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.tenants.access_counts import AccessCounts
from penstock.core.tenants.identity_claims import claim_holders
from penstock.core.tenants.tenant import Tenant


class TenantStatuses:
    """Keeps the status of each Tenant current, and counts the tenants of services.

    applied: the generation of a tenant that each gateway applies; None until the gateways have been asked.
    services: by key, as last watched. affected: called with the key of each service of which another number
    of tenants may use the model name now.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        applied: Callable[[str], AppliedGenerations | None],
        services: Callable[[], Mapping[Key, Object]],
        affected: Callable[[Key], None],
        failures: Failures,
        restarted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        self._applied = applied
        self._services = services
        self._affected = affected
        self._failures = failures
        self._loop = StatusLoop("tenants", self.update, failures)
        self._has_changed = True
        self._readings: dict[str, tuple[Object, Tenant | ValueError]] = {}
        # Numbers of tenants that may use the models; None until the tenants have been listed.
        self.counts: AccessCounts | None = None
        self._tenants = Informer(
            kube, TENANTS, changed=self._tenant_changed, restarted=restarted, is_optional=True
        )

    async def run(self) -> None:
        """Watch the tenants and write their statuses, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tenants.run())
            await self._tenants.synced.wait()
            await self._loop.run()

    async def update(self) -> None:
        """Write each status that is out of date. An error on one tenant stops no other."""
        if self._tenants.is_absent:
            return  # without the right to list them, nobody knows whether there are any
        self._read_all()
        tenants = [each for _, each in self._readings.values() if isinstance(each, Tenant)]
        if self._has_changed or self.counts is None:
            self._has_changed = False
            self._recount(tenants)
        holders = claim_holders(tenants)
        for name, (body, tenant) in list(self._readings.items()):
            with self._failures.isolate_errors("tenants", name):
                await self._write(body, TenantInputs(tenant, holders, self._applied(name)))

    def _tenant_changed(self, _: Key) -> None:
        self._has_changed = True
        self._loop.wake()

    def _read_all(self) -> None:
        """Read the objects that have changed."""
        last, self._readings = self._readings, {}
        for body in self._tenants:
            name = body["metadata"]["name"]
            known = last.get(name)
            self._readings[name] = known if known and known[0] is body else (body, _read(body))

    def _recount(self, tenants: list[Tenant]) -> None:
        before, self.counts = self.counts, AccessCounts(tenants)
        for key, body in self._services().items():
            name = _model_name(body)
            now = self.counts.count(key[0], name)
            if before is None or before.count(key[0], name) != now:
                self._affected(key)

    async def _write(self, body: Object, inputs: TenantInputs) -> None:
        if inputs.applied is None and "conditions" in body.get("status", {}):
            return  # what the leader before wrote stays until the gateways have been asked
        after = tenant_status(body, inputs, timestamp(unix_time()))
        await write_status(self._kube, TENANTS, body, after)


def _read(body: Object) -> Tenant | ValueError:
    try:
        return to_tenant(body)
    except ValueError as error:
        return error


def _model_name(service: Object) -> str:
    """The model name that clients send for a service."""
    name = service.get("status", {}).get("modelName") or service["spec"]["model"].get("name")
    return str(name or service["metadata"]["name"])
