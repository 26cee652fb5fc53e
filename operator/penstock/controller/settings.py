"""Settings of the operator process."""

from dataclasses import dataclass

from penstock.clients.promql import Server
from penstock.core.manifests.allowed_pods import DEFAULT_LIMITS, PodLimits


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator process.

    identity: this replica's name in the Lease. engine_image: image of engine pods. namespace: where
    the Lease and the gateways are. host, port: where health and metrics are served. metrics_hosts:
    servers that canaries' metrics may be queried from. prometheus: fallback for engines that cannot
    be scraped. watch_namespace: the only one whose services are operated; None: all. limits: of what
    services may set in their pods.
    """

    identity: str
    engine_image: str
    namespace: str
    host: str
    port: int
    metrics_hosts: tuple[str, ...] = ()
    prometheus: Server | None = None
    watch_namespace: str | None = None
    limits: PodLimits = DEFAULT_LIMITS
