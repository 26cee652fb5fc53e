"""Reads an endpoint of a pod of Penstock's own from outside the cluster."""

import ipaddress
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import aiohttp

from penstock.clients.kubernetes.client import Kube, Object, lines
from penstock.clients.kubernetes.resources import PODS
from penstock.errors import KubeError, Transient

NETWORK_POLICY_HINT = "if a NetworkPolicy is why, name the API server in networkPolicy.metricsFrom"


async def stream_pod(
    kube: Kube,
    pod: Object,
    port_name: str,
    path: str,
    *,
    query: Mapping[str, str] = {},
    timeout_s: float,
) -> AsyncGenerator[bytes]:
    """Yield the lines of a response of a pod. port_name: of its container's port.

    The API server proxies the request, for which the user needs `get` on `pods/proxy`. It does not proxy
    to loopback addresses, which pods of a local cluster have; those are requested directly. Raises
    KubeError.
    """
    port = _port(pod, port_name)
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    address = ipaddress.ip_address(pod["status"]["podIP"])
    if not address.is_loopback:
        relayed = f"{PODS.path(namespace)}/{name}:{port}/proxy{path}"
        try:
            async with aclosing(kube.stream(relayed, query=query, timeout_s=timeout_s)) as relay:
                async for line in relay:
                    yield line
        except Transient as error:
            raise Transient(f"{error} ({NETWORK_POLICY_HINT})") from error
        return
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{address}:{port}{path}", params=query) as answer,
        ):
            if answer.status != 200:
                raise Transient(await answer.text())
            async for line in lines(answer.content):
                yield line
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Transient(f"{name} cannot be reached: {type(error).__name__}") from error


def _port(pod: Object, port_name: str) -> int:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            if port.get("name") == port_name:
                return int(port["containerPort"])
    raise KubeError(f"the pod {pod['metadata']['name']} has no port called {port_name}")
