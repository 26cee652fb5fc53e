"""Keeps a NetworkPolicy of the engines in each namespace with services."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.chart.names import GATEWAY, OPERATOR, selector
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key, key_of
from penstock.clients.kubernetes.resources import NETWORK_POLICIES
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import OPERATOR_MANAGER
from penstock.controller.process.settings import Settings
from penstock.core.manifests.network import ENGINES_POLICY_NAME, engines_policy
from penstock.core.spec.service import MANAGED_BY, MANAGED_LABEL
from penstock.errors import KubeError

logger = logging.getLogger(__name__)

# Seconds between corrections; an engine takes longer to start, so it is never reachable without its policy.
TICK_S = 5.0


class EnginePolicies:
    """Applies the policies of `engines_policy`, and deletes those that are no longer wanted.

    services: as last watched; None until they have been listed.
    """

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        *,
        services: Callable[[], Mapping[Key, Object] | None],
        failures: Failures,
        restarted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        further = settings.engines_from
        self._peers = None if further is None else engine_peers(settings.namespace, further)
        self._subscribers = [gateway_peer(settings.namespace)]
        self._services = services
        self._failures = failures
        self._policies = Informer(
            kube,
            NETWORK_POLICIES,
            namespace=settings.watch_namespace,
            selector=f"{MANAGED_LABEL}={MANAGED_BY}",
            changed=lambda _: None,
            restarted=restarted,
        )

    async def run(self) -> None:
        """Watch the policies and correct them every few seconds, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._policies.run())
            await self._policies.synced.wait()
            while True:
                with self._failures.isolate_errors("policies"):
                    await self.update()
                await asyncio.sleep(TICK_S)

    async def update(self) -> None:
        """Write each policy that is not as it should be. A refusal in one namespace stops no other."""
        services = self._services()
        if services is None:
            return
        present = {
            key[0]: each
            for each in self._policies
            if (key := key_of(each))[1] == ENGINES_POLICY_NAME
        }
        wanted = set() if self._peers is None else {namespace for namespace, _ in services}
        for namespace in wanted | present.keys():
            try:
                await self._correct(namespace, present.get(namespace), namespace in wanted)
            except KubeError as error:
                logger.warning("the NetworkPolicy of engines in %s: %s", namespace, error)

    async def _correct(self, namespace: str, present: Object | None, is_wanted: bool) -> None:
        if self._peers is not None and is_wanted:
            policy = engines_policy(namespace, self._peers, self._subscribers)
            if present is None or not present["spec"].items() >= policy["spec"].items():
                await self._kube.apply(policy, manager=OPERATOR_MANAGER)
        elif present is not None:
            uid = present["metadata"]["uid"]
            await self._kube.delete(NETWORK_POLICIES, namespace, ENGINES_POLICY_NAME, uid=uid)


def engine_peers(namespace: str, further: Sequence[Object]) -> Sequence[Object]:
    """Peers that may connect to engines: gateways and operators of a namespace, and further ones."""
    return [gateway_peer(namespace), _peer(namespace, OPERATOR), *further]


def gateway_peer(namespace: str) -> Object:
    """The peer that is the gateways of a namespace."""
    return _peer(namespace, GATEWAY)


def _peer(namespace: str, component: str) -> Object:
    home = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {"namespaceSelector": home, "podSelector": {"matchLabels": selector(component)}}
