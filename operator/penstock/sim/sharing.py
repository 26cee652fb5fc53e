"""Shares one GPU budget among services by priority."""

from collections.abc import Sequence

from penstock.core.scaling.budget import Claim, share_accelerators
from penstock.sim.quota import Quota
from penstock.sim.service import Service


class Sharing:
    """Divides a GPU kind's quota among its services anew whenever one of them asks for replicas."""

    def __init__(self, quota: Quota, services: Sequence[Service]) -> None:
        self._quota = quota
        self._services = services
        self._wanted = {service.spec.name: service.fleet.desired for service in services}

    def ask(self, service: Service, replicas: int) -> None:
        self._wanted[service.spec.name] = replicas
        gpu = service.spec.engine.gpu
        peers = [peer for peer in self._services if peer.spec.engine.gpu == gpu]
        grants = share_accelerators([self._claim(peer) for peer in peers], self._quota.limits[gpu])
        for peer in peers:
            peer.fleet.scale(grants[peer.spec.name].replicas)

    def _claim(self, service: Service) -> Claim:
        spec = service.spec
        return Claim(
            spec.name, self._wanted[spec.name], spec.min_replicas, spec.priority, spec.engine.gpus
        )
