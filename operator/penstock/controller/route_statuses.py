"""Writes the status of all ModelRoutes, as routes, services and gateways change."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from penstock.clients.clock import unix_time
from penstock.clients.informer import Informer, Key, key_of
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import MODEL_ROUTES
from penstock.controller.failures import Failures
from penstock.controller.plan_writer import OPERATOR_MANAGER
from penstock.core.formats.timestamps import timestamp
from penstock.core.reconcile.route_status import RouteInputs, route_status
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.spec.service import REVISION_LABEL, SERVICE_LABEL
from penstock.errors import Conflict, NotFound

# Services and gateways are compared with the routes this often, and at once after a change of a route.
TICK_S = 2.0


class RouteStatuses:
    """Keeps the status of each ModelRoute current.

    services, deployments: as last watched. applied: the generation of a route that each gateway applies.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        services: Callable[[], Mapping[Key, Object]],
        deployments: Callable[[], Iterable[Object]],
        applied: Callable[[Key], AppliedGenerations | None],
        failures: Failures,
        restarted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        self._services = services
        self._deployments = deployments
        self._applied = applied
        self._failures = failures
        self._changed = asyncio.Event()
        self._routes = Informer(
            kube, MODEL_ROUTES, changed=lambda _: self._changed.set(), restarted=restarted
        )

    async def run(self) -> None:
        """Watch the routes and write their statuses, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._routes.run())
            while True:
                self._changed.clear()
                await self.update()
                try:
                    async with asyncio.timeout(TICK_S):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    async def update(self) -> None:
        """Write each status that is out of date. An error on one route stops no other."""
        for route in list(self._routes):
            name = "/".join(key_of(route))
            with self._failures.isolate_errors("routes", name):
                await self._write(route)

    async def _write(self, route: Object) -> None:
        before, metadata = route.get("status", {}), route["metadata"]
        after = route_status(route, self._inputs(key_of(route)), timestamp(unix_time()))
        if {name: before.get(name) for name in after} == after:
            return
        # The patch fails if the route was replaced or changed meanwhile.
        preconditions = {name: metadata[name] for name in ("uid", "resourceVersion")}
        patch = {"metadata": preconditions, "status": after}
        try:
            await self._kube.merge(
                MODEL_ROUTES, *key_of(route), patch, manager=OPERATOR_MANAGER, sub="status"
            )
        except (NotFound, Conflict):
            return  # its watch event starts another try

    def _inputs(self, key: Key) -> RouteInputs:
        namespace = key[0]
        revisions: dict[str, frozenset[str]] = {}
        for each in self._deployments():
            labels = each["metadata"].get("labels", {})
            if each["metadata"]["namespace"] == namespace and SERVICE_LABEL in labels:
                found = revisions.get(labels[SERVICE_LABEL], frozenset())
                revisions[labels[SERVICE_LABEL]] = found | {labels.get(REVISION_LABEL, "")}
        return RouteInputs(
            routes={name: each for (where, name), each in self._by_key() if where == namespace},
            services={
                name: each for (where, name), each in self._services().items() if where == namespace
            },
            revisions=revisions,
            applied=self._applied(key),
        )

    def _by_key(self) -> Iterable[tuple[Key, Object]]:
        return ((key_of(each), each) for each in self._routes)
