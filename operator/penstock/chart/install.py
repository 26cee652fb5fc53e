"""All manifests that install Penstock in a cluster."""

from collections.abc import Sequence
from typing import Any

from penstock.api.crdgen import crds
from penstock.chart.system import system_manifests


def install_manifests(
    *,
    image: str,
    gateway_port: int,
    host_network: bool,
    replicas: int,
    operator_args: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the manifests in the order to apply: CRDs, then operator and gateway."""
    system = system_manifests(
        image,
        gateway_port=gateway_port,
        host_network=host_network,
        replicas=replicas,
        operator_args=operator_args,
    )
    return [*crds(), *system]
