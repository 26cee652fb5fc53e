"""A pod object that holds the operator's Lease, and the address of this machine."""

import socket

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import LEASES, PODS


def outer_address() -> str | None:
    """Return this machine's address that is not a loopback one, if any. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


async def lead(kube: Kube, namespace: str, address: str, port: int) -> None:
    """Create a pod object with this address and a Lease that it holds."""
    container = {"name": "c", "image": "x", "ports": [{"name": "http", "containerPort": port}]}
    pod = {
        "metadata": {"name": "op"},
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }
    await kube.create(PODS, namespace, pod)
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    await kube.merge(PODS, namespace, "op", status, manager="test", sub="status")
    lease = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": "op-123"}}
    await kube.create(LEASES, namespace, lease)
