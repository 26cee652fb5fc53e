"""Access to the leading operator for commands outside the cluster."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.pod_stream import stream_pod
from penstock.clients.kubernetes.resources import LEASES, PODS
from penstock.core.adapters.placement_record import PlacementRecord, read_placement
from penstock.errors import KubeError, NotFound

PORT_NAME = "http"
PLACEMENT_TIMEOUT_S = 10.0


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
    """Yield the lines of a response of the leading operator. Raises KubeError."""
    pod = await _leader(kube, operator_namespace, lease)
    async with aclosing(stream_pod(kube, pod, PORT_NAME, path, timeout_s=timeout_s)) as stream:
        async for line in stream:
            yield line


async def _leader(kube: Kube, namespace: str, lease: str) -> Object:
    """Return the leader's pod. It holds the Lease as POD-PROCESS."""
    try:
        holder = (await kube.get(LEASES, namespace, lease))["spec"].get("holderIdentity") or ""
        if not holder:
            raise KubeError(f"no operator leads in {namespace}: nobody holds the Lease {lease}")
        return await kube.get(PODS, namespace, holder.rpartition("-")[0])
    except NotFound as error:
        raise KubeError(f"no operator leads in {namespace}: {error}") from error
