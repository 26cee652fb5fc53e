"""Names and labels of Penstock's own objects in a cluster."""

from penstock.core.spec.service import MANAGED_BY

NAMESPACE = "penstock-system"
# Pattern of the names of namespaces that the API server accepts, of at most 63 characters.
NAMESPACE_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
MAX_NAMESPACE_LENGTH = 63
OPERATOR, GATEWAY = "penstock-operator", "penstock-gateway"
NODE_CACHE, BATCH = "penstock-node-cache", "penstock-batch"
KEYS_ROLE, GATEWAY_PODS_ROLE = "penstock-gateway-keys", "penstock-gateway-pods"
LEASE_NAME, LEASE_ROLE = "penstock-operator", "penstock-operator-lease"
OPERATOR_PORT = 8081
# Ports of the batch server: for gateways, and for probes and metrics.
BATCH_PORT, BATCH_MANAGEMENT_PORT = 8084, 8085
USER_VIEW_ROLE, USER_EDIT_ROLE = "penstock-view", "penstock-edit"
# Name of the container port with probes, metrics and what the operator reads.
MANAGEMENT_PORT_NAME = "management"
# Volume of the gateway's certificate, and its folder in the container.
TLS_VOLUME, TLS_FOLDER = "gateway-tls", "/etc/penstock/tls"
# Volume of the token that gateways and the batch server share, and its folder in both containers.
BATCH_TOKEN_VOLUME, BATCH_TOKEN_FOLDER = "batch-token", "/etc/penstock/batch-token"
# Volumes of the batch server: its files, and the authority of the gateway's certificate.
BATCH_STORE_VOLUME, BATCH_STORE_FOLDER = "batch-store", "/var/lib/penstock"
GATEWAY_CA_VOLUME, GATEWAY_CA_FOLDER = "gateway-ca", "/etc/penstock/gateway-ca"


def gateway_url(namespace: str, *, has_tls: bool = False) -> str:
    """The base URL of the OpenAI API for clients within the cluster. namespace: of the gateway."""
    return f"{'https' if has_tls else 'http'}://{GATEWAY}.{namespace}.svc/v1"


def labels(name: str) -> dict[str, str]:
    """Labels of an object. name: of the component, or of the object if it belongs to none."""
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": MANAGED_BY}


def selector(name: str) -> dict[str, str]:
    """Labels that a component's pods have, and no others. name: of the component."""
    return {"app.kubernetes.io/name": name}
