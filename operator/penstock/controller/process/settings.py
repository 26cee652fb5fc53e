"""Settings of the operator process."""

from dataclasses import dataclass

from penstock.clients.prometheus.promql import Server
from penstock.core.manifests.allowed_pods import DEFAULT_LIMITS, PodLimits
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator process.

    identity: this replica's name in the Lease. engine_image: image of engine pods. namespace: namespace
    of the Lease and the gateways. host, port: address for probes and metrics. metrics_hosts: Prometheus
    servers that canaries' metric queries may use. prometheus: fallback for engines that cannot be
    scraped. watch_namespace: namespace whose services are operated; None: all namespaces. limits: on the
    pods of services. engines_from: peers that may connect to engines besides gateways and operators; None:
    no NetworkPolicy restricts engines.
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
    engines_from: tuple[Object, ...] | None = None
