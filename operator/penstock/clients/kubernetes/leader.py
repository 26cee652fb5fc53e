"""Access to the leading operator for commands outside the cluster."""

import ipaddress
from collections.abc import AsyncGenerator
from contextlib import aclosing

import aiohttp

from penstock.clients.kubernetes.client import Kube, Object, lines
from penstock.clients.kubernetes.resources import LEASES, PODS
from penstock.core.adapters.placement_record import PlacementRecord, read_placement
from penstock.errors import KubeError, NotFound, Transient

PORT_NAME = "http"
PLACEMENT_TIMEOUT_S = 10.0
NETWORK_POLICY_HINT = "if a NetworkPolicy is why, name the API server in networkPolicy.metricsFrom"


async def recording(
    kube: Kube, operator_namespace: str, lease: str, service: str, *, timeout_s: float
) -> AsyncGenerator[bytes]:
    """Yield the recorded decisions of the service "namespace/name" as JSON lines, from the next one on.

    Raises KubeError.
    """
    path = f"/recording/{service}"
    stream = _stream(kube, operator_namespace, lease, path, timeout_s=timeout_s)
    async with aclosing(stream) as found:
        async for line in found:
            yield line


async def placement(
    kube: Kube, operator_namespace: str, lease: str, service: str
) -> PlacementRecord:
    """The last placement of the adapters of the service "namespace/name". Raises KubeError."""
    path = f"/placements/{service}"
    stream = _stream(kube, operator_namespace, lease, path, timeout_s=PLACEMENT_TIMEOUT_S)
    async with aclosing(stream) as found:
        text = b"\n".join([line async for line in found])
    try:
        return read_placement(text)
    except ValueError as error:
        raise KubeError(
            f"the operator's answer cannot be read, perhaps because it has another version: {error}"
        ) from error


async def _stream(
    kube: Kube, operator_namespace: str, lease: str, path: str, *, timeout_s: float
) -> AsyncGenerator[bytes]:
    """Yield the lines of a response of the leading operator.

    The API server proxies the request, for which the user needs `get` on `pods/proxy`. It does not proxy
    to loopback addresses, which pods of a local cluster have; those are requested directly. Raises
    KubeError.
    """
    pod, port = await _leader(kube, operator_namespace, lease)
    address = ipaddress.ip_address(pod["status"]["podIP"])
    if not address.is_loopback:
        relayed = f"{PODS.path(operator_namespace)}/{pod['metadata']['name']}:{port}/proxy{path}"
        try:
            async with aclosing(kube.stream(relayed, timeout_s=timeout_s)) as relay:
                async for line in relay:
                    yield line
        except Transient as error:
            raise Transient(f"{error} ({NETWORK_POLICY_HINT})") from error
        return
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{address}:{port}{path}") as answer,
        ):
            if answer.status != 200:
                raise Transient(await answer.text())
            async for line in lines(answer.content):
                yield line
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Transient(f"the operator cannot be reached: {type(error).__name__}") from error


async def _leader(kube: Kube, namespace: str, lease: str) -> tuple[Object, int]:
    """Return the leader's pod and the port of its own endpoints. It holds the Lease as POD-PROCESS."""
    try:
        holder = (await kube.get(LEASES, namespace, lease))["spec"].get("holderIdentity") or ""
        if not holder:
            raise KubeError(f"no operator leads in {namespace}: nobody holds the Lease {lease}")
        pod = await kube.get(PODS, namespace, holder.rpartition("-")[0])
    except NotFound as error:
        raise KubeError(f"no operator leads in {namespace}: {error}") from error
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            if port.get("name") == PORT_NAME:
                return pod, int(port["containerPort"])
    raise KubeError(f"the operator's pod has no port called {PORT_NAME}")
