"""Writes the status of all ModelRoutes, as routes, services and gateways change."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key, key_of
from penstock.clients.kubernetes.resources import EXTERNAL_MODELS, MODEL_ROUTES
from penstock.clients.machine.clock import unix_time
from penstock.controller.process.failures import Failures
from penstock.controller.watching.status_loop import StatusLoop, write_status
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.name_claims import alias_claims, order_of_objects
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.route_status import RouteInputs, route_status
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.spec.service import REVISION_LABEL, SERVICE_LABEL

T = TypeVar("T")


class RouteStatuses:
    """Keeps the status of each ModelRoute current.

    namespace: None for all. services, deployments, adapters: as last watched; None until they have been
    listed.
    names: the model names that all objects claim. applied: the generation of a route that each gateway
    applies; None until the gateways have been asked. changed: called with each route that is added, changed
    or deleted; None for a deleted one.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str | None = None,
        services: Callable[[], Mapping[Key, Object] | None],
        deployments: Callable[[], Iterable[Object] | None],
        adapters: Callable[[], Iterable[Object] | None],
        names: Callable[[], NameIndex],
        applied: Callable[[Key], AppliedGenerations | None],
        failures: Failures,
        changed: Callable[[Key, Object | None], None] = lambda *_: None,
        restarted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        self._services = services
        self._deployments = deployments
        self._adapters = adapters
        self._names = names
        self._applied = applied
        self._report_change = changed
        self._failures = failures
        self._loop = StatusLoop("routes", self.update, failures)
        self._routes = Informer(
            kube,
            MODEL_ROUTES,
            namespace=namespace,
            changed=self._route_changed,
            restarted=restarted,
        )
        self._externals = Informer(
            kube,
            EXTERNAL_MODELS,
            namespace=namespace,
            changed=lambda _: self._loop.wake(),
            restarted=restarted,
            is_optional=True,
        )

    async def run(self) -> None:
        """Watch the routes and write their statuses, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._routes.run())
            group.create_task(self._externals.run())
            await self._externals.synced.wait()
            await self._loop.run()

    @property
    def routes(self) -> Informer | None:
        """All routes; None until they have been listed."""
        return self._routes if self._routes.synced.is_set() else None

    async def update(self) -> None:
        """Write each status that is out of date. An error on one route stops no other.

        Until services, Deployments and adapters have been listed, nothing is written: a new leader would
        take them for missing.
        """
        services, deployments, adapters = self._services(), self._deployments(), self._adapters()
        if services is None or deployments is None or adapters is None:
            return
        externals = _by_namespace({key_of(each): each for each in self._externals})
        of_adapters = _by_namespace({key_of(each): each for each in adapters})
        # The older of two new routes takes a name that both claim, as in gateways.
        in_order = sorted(self._routes, key=order_of_objects)
        there, revisions = _by_namespace(services), _by_namespace(_revisions(deployments))
        for route in in_order:
            namespace, _ = key = key_of(route)
            inputs = RouteInputs(
                names=self._names(),
                services=there.get(namespace, {}),
                revisions=revisions.get(namespace, {}),
                applied=self._applied(key),
                adapters=of_adapters.get(namespace, {}),
                externals=externals.get(namespace, {}),
            )
            with self._failures.isolate_errors("routes", *key):
                await self._write(route, inputs)

    def _route_changed(self, key: Key) -> None:
        self._report_change(key, self._routes.get(key))
        self._loop.wake()

    async def _write(self, route: Object, inputs: RouteInputs) -> None:
        if inputs.applied is None and "conditions" in route.get("status", {}):
            return  # what the leader before wrote stays until the gateways have been asked
        keys = [("ModelRoute", *key_of(route)), *(claim.key for claim in alias_claims(route))]
        claims = [claim for key in keys if (claim := inputs.names.get(key)) is not None]
        are_recorded = [inputs.names.record_holder(claim) for claim in claims]
        if not all(are_recorded):
            return  # the next pass decides, as the holder of a name is recorded only now
        after = route_status(route, inputs, timestamp(unix_time()))
        await write_status(self._kube, MODEL_ROUTES, route, after)


def _by_namespace(items: Mapping[Key, T]) -> dict[str, dict[str, T]]:
    """Items by namespace and name."""
    found: dict[str, dict[str, T]] = {}
    for (namespace, name), item in items.items():
        found.setdefault(namespace, {})[name] = item
    return found


def _revisions(deployments: Iterable[Object]) -> dict[Key, frozenset[str]]:
    """Revisions with a Deployment, by service."""
    found: dict[Key, frozenset[str]] = {}
    for each in deployments:
        labels = each["metadata"].get("labels", {})
        if SERVICE_LABEL in labels:
            key = each["metadata"]["namespace"], labels[SERVICE_LABEL]
            found[key] = found.get(key, frozenset()) | {labels.get(REVISION_LABEL, "")}
    return found
