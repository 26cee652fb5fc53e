"""Writes the status of all Tenants, as tenants and gateways change."""

import asyncio
from collections.abc import Callable, Mapping

from penstock.api.conversion.tenants import to_tenant
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import TENANTS
from penstock.clients.machine.clock import unix_time
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import OPERATOR_MANAGER
from penstock.core.formats.json_merge import if_unchanged
from penstock.core.formats.timestamps import timestamp
from penstock.core.reconcile.tenants.tenant_status import TenantInputs, tenant_status
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.tenants.access_counts import AccessCounts
from penstock.core.tenants.identity_claims import claim_holders
from penstock.core.tenants.tenant import Tenant
from penstock.errors import Conflict, NotFound

# Tenants are compared with what the gateways apply this often, and at once after a change of a tenant.
TICK_S = 2.0


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
        self._changed = asyncio.Event()
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
            while True:
                self._changed.clear()
                with self._failures.isolate_errors("tenants"):
                    await self.update()
                try:
                    async with asyncio.timeout(TICK_S):
                        await self._changed.wait()
                except TimeoutError:
                    continue

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
        self._changed.set()

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
        before = body.get("status", {})
        if inputs.applied is None and "conditions" in before:
            return  # what the leader before wrote stays until the gateways have been asked
        after = tenant_status(body, inputs, timestamp(unix_time()))
        if {name: before.get(name) for name in after} == after:
            return
        patch = if_unchanged(body, {"status": after})
        try:
            await self._kube.merge(
                TENANTS,
                None,
                body["metadata"]["name"],
                patch,
                manager=OPERATOR_MANAGER,
                sub="status",
            )
        except (NotFound, Conflict):
            return  # its watch event starts another try


def _read(body: Object) -> Tenant | ValueError:
    try:
        return to_tenant(body)
    except ValueError as error:
        return error


def _model_name(service: Object) -> str:
    """The model name that clients send for a service."""
    name = service.get("status", {}).get("modelName") or service["spec"]["model"].get("name")
    return str(name or service["metadata"]["name"])
