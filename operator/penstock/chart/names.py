"""Names and labels of Penstock's own objects in a cluster."""

from penstock.core.spec.service import MANAGED_BY

NAMESPACE = "penstock-system"
# Pattern of the names of namespaces that the API server accepts, of at most 63 characters.
NAMESPACE_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
MAX_NAMESPACE_LENGTH = 63
OPERATOR, GATEWAY = "penstock-operator", "penstock-gateway"
NODE_CACHE = "penstock-node-cache"
KEYS_ROLE = "penstock-gateway-keys"
LEASE_NAME, LEASE_ROLE = "penstock-operator", "penstock-operator-lease"
OPERATOR_PORT = 8081
USER_VIEW_ROLE, USER_EDIT_ROLE = "penstock-view", "penstock-edit"
# Name of the container port with probes, metrics and what the operator reads.
MANAGEMENT_PORT_NAME = "management"
# Volume of the gateway's certificate, and its folder in the container.
TLS_VOLUME, TLS_FOLDER = "gateway-tls", "/etc/penstock/tls"


def gateway_url(namespace: str, *, has_tls: bool = False) -> str:
    """The base URL of the OpenAI API for clients within the cluster. namespace: of the gateway."""
    return f"{'https' if has_tls else 'http'}://{GATEWAY}.{namespace}.svc/v1"


def labels(name: str) -> dict[str, str]:
    """Labels of an object. name: of the component, or of the object if it belongs to none."""
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": MANAGED_BY}


def selector(name: str) -> dict[str, str]:
    """Labels that a component's pods have, and no others. name: of the component."""
    return {"app.kubernetes.io/name": name}
