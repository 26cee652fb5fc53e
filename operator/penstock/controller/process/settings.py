"""Settings of the operator process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.chart.names import gateway_url
from penstock.clients.prometheus.promql import Server
from penstock.core.manifests.allowed_pods import DEFAULT_LIMITS, PodLimits
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator process."""

    identity: str  # this replica's name in the Lease
    engine_image: str  # image of engine pods
    namespace: str  # namespace of the Lease and the gateways
    # host, port: address for probes and metrics
    host: str
    port: int
    metrics_hosts: tuple[str, ...] = ()  # Prometheus servers that canaries' metric queries may use
    prometheus: Server | None = None  # fallback for engines that cannot be scraped
    # Namespace whose services are operated; None: all namespaces
    watch_namespace: str | None = None
    limits: PodLimits = DEFAULT_LIMITS  # on the pods of services
    # Variables of containers that fetch models, by name
    source_variables: Mapping[str, str] = field(default_factory=dict)
    # Peers that may connect to engines besides gateways and operators; None: no NetworkPolicy restricts
    # engines
    engines_from: tuple[Object, ...] | None = None
    gateway_has_tls: bool = False

    @property
    def gateway_url(self) -> str:
        """The base URL of the OpenAI API, which the status of each service has."""
        return gateway_url(self.namespace, has_tls=self.gateway_has_tls)
