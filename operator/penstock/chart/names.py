"""Names of Penstock's own objects in a cluster."""

NAMESPACE = "penstock-system"
OPERATOR, GATEWAY = "penstock-operator", "penstock-gateway"
OPERATOR_PORT = 8081


def gateway_url(namespace: str) -> str:
    """The base URL of the OpenAI API for clients within the cluster. namespace: of the gateway."""
    return f"http://{GATEWAY}.{namespace}.svc/v1"
