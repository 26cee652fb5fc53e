"""Gateway pods to read stats reports from."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.chart.names import MANAGEMENT_PORT_NAME
from penstock.clients.kubernetes.client import Object
from penstock.core.formats.addresses import host_port
from penstock.core.observed.pods import ObservedPod, container_port


@dataclass(frozen=True, slots=True)
class GatewayPod:
    """A gateway to scrape.

    address: host:port of its stats report. is_ready: ready and not terminating; it must answer.
    """

    name: str
    address: str
    is_ready: bool


def gateway_pods(bodies: Iterable[Object]) -> list[GatewayPod]:
    """Return the gateways among these pods that run and have an address."""
    found = []
    for body in bodies:
        pod = ObservedPod.of(body)
        port = container_port(body, MANAGEMENT_PORT_NAME)
        if pod.address and port is not None and pod.phase == "Running":
            is_ready = pod.is_ready and not pod.is_ending
            found.append(GatewayPod(pod.name, host_port(pod.address, port), is_ready))
    return found
