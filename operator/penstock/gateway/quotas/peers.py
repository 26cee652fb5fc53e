"""Counts the ready gateways of the installation, which share limits while there is no store."""

from collections.abc import Callable

from penstock.chart.names import GATEWAY
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import PODS
from penstock.core.observed.pods import ObservedPod


class GatewayPeers:
    """The gateways of a namespace, this one included. count: those that are ready, at least 1."""

    def __init__(self) -> None:
        self.count = 1

    async def follow(
        self, kube: Kube, namespace: str, restarted: Callable[[str], None] = lambda _: None
    ) -> None:
        """Watch the gateways' pods until cancelled. Without the right to, the count stays as it was.

        namespace: of the installation. restarted: called with the kind each time that it is listed again.
        """

        def update(_: Key) -> None:
            pods = map(ObservedPod.of, informer)
            self.count = max(1, sum(pod.is_ready and not pod.is_ending for pod in pods))

        informer = Informer(
            kube,
            PODS,
            namespace=namespace,
            selector=f"app.kubernetes.io/name={GATEWAY}",
            changed=update,
            restarted=restarted,
            is_optional=True,
        )
        await informer.run()
