"""Gateway pods to read stats reports from."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.chart.names import MANAGEMENT_PORT_NAME
from penstock.clients.kubernetes.client import Object
from penstock.core.formats.addresses import host_port
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.pods import ObservedPod, container_port
from penstock.core.routing.hold import HOLD_S
from penstock.core.scaling.idle import SilentGateway

# The gateway's flag with the time limit of requests that wait for a first engine.
HOLD_FLAG = "--hold-s"


@dataclass(frozen=True, slots=True)
class GatewayPod:
    """A gateway to scrape.

    address: host:port of its stats report. unready_at_s: Unix time since which it has not been ready, or has
    been terminating; None: it is ready, and must answer. hold_s: how long it holds a request at most.
    """

    name: str
    address: str
    unready_at_s: float | None = None
    hold_s: float = HOLD_S

    @property
    def is_ready(self) -> bool:
        return self.unready_at_s is None

    def silent(self, now_s: float) -> SilentGateway:
        """The gateway as one that does not answer. now_s: Unix time."""
        at_s = self.unready_at_s
        return SilentGateway(None if at_s is None else now_s - at_s, self.hold_s)


def gateway_pods(bodies: Iterable[Object]) -> list[GatewayPod]:
    """Return the gateways among these pods that run and have an address."""
    found = []
    for body in bodies:
        pod = ObservedPod.of(body)
        port = container_port(body, MANAGEMENT_PORT_NAME)
        if pod.address and port is not None and pod.phase == "Running":
            address = host_port(pod.address, port)
            found.append(GatewayPod(pod.name, address, _unready_at_s(body, pod), _hold_s(body)))
    return found


def _unready_at_s(body: Object, pod: ObservedPod) -> float | None:
    """Unix time since which Services route no client to the pod; None if they do."""
    times_s = []
    if not pod.is_ready:
        times_s.append(parse_timestamp(pod.unready_at or pod.created_at))
    if pod.is_ending:
        metadata = body["metadata"]
        grace_s = metadata.get("deletionGracePeriodSeconds") or 0
        times_s.append(parse_timestamp(metadata["deletionTimestamp"]) - grace_s)
    return min(times_s, default=None)


def _hold_s(body: Object) -> float:
    """Time for which the gateway holds a request, by its arguments or by default."""
    for container in body["spec"]["containers"]:
        arguments = container.get("args") or []
        for number, argument in enumerate(arguments):
            name, _, value = argument.partition("=")
            if name == HOLD_FLAG:
                return _number(value or next(iter(arguments[number + 1 :]), ""))
    return HOLD_S


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return HOLD_S
