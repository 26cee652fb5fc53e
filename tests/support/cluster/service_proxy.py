"""Stands in for the Service network, which the node agent does not have: a proxy of TCP connections.

There are no EndpointSlices either: they may not have the loopback addresses of the node agent's pods.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import PODS, SERVICES
from penstock.core.observed.pods import ObservedPod
from penstock.errors import KubeError, NotFound
from penstock.local.cluster import Cluster

logger = logging.getLogger(__name__)

POLL_S = 0.2
CHUNK_BYTES = 1 << 16


@asynccontextmanager
async def reachable_service(
    cluster: Cluster, kube: Kube, namespace: str, name: str
) -> AsyncIterator[str]:
    """Give a URL at which programs of this machine reach a Service."""
    if cluster.node == "kubelet":
        service = await kube.get(SERVICES, namespace, name)
        yield f"http://{service['spec']['clusterIP']}"
        return
    async with ServiceProxy(kube, namespace, name) as proxy:
        yield proxy.url


class ServiceProxy:
    """Relays each connection to a random ready endpoint of a Service, as kube-proxy does.

    A connection stays at its endpoint. The endpoints are those of 0.2 s ago; none while the Service does not
    exist, or the API server does not answer.
    """

    def __init__(self, kube: Kube, namespace: str, service: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._service = service
        self._endpoints: list[tuple[str, int]] = []
        self._draw = random.Random(1)
        self._relays: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._refresh()
        self._poll = asyncio.create_task(self._follow())
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        tasks = {self._poll, *self._relays}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._refresh()

    async def _refresh(self) -> None:
        """Find the endpoints, or none."""
        try:
            self._endpoints = await self._find()
        except (NotFound, KubeError):
            self._endpoints = []

    async def _find(self) -> list[tuple[str, int]]:
        """Find the endpoints as Kubernetes does: by the Service's selector. Pods that end are left out."""
        service = await self._kube.get(SERVICES, self._namespace, self._service)
        selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
        port_name = service["spec"]["ports"][0]["targetPort"]
        pods, _ = await self._kube.list(PODS, self._namespace, labelSelector=selector)
        return [
            (pod["status"]["podIP"], port["containerPort"])
            for pod in pods
            if ObservedPod.of(pod).is_ready and "deletionTimestamp" not in pod["metadata"]
            for port in pod["spec"]["containers"][0]["ports"]
            if port["name"] == port_name
        ]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            if not self._endpoints:
                logger.warning("no endpoint of %s is ready", self._service)
                return
            try:
                there = await asyncio.open_connection(*self._draw.choice(self._endpoints))
            except OSError as error:
                logger.warning("an endpoint of %s cannot be reached: %s", self._service, error)
                return
            with contextlib.closing(there[1]):
                await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until either side closes, then close the target."""
    with contextlib.suppress(OSError), contextlib.closing(target):
        while chunk := await source.read(CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
