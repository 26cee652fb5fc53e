"""Rights of a node's programs at the API server, and of the API server at kubelets."""

from typing import Any

# Names of programs, of their certificates, and of the users that these are at the API server.
COREDNS, KUBE_ROUTER, METRICS_SERVER = "coredns", "kube-router", "metrics-server"
READ = ["get", "list", "watch"]
ENDPOINTS = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": READ}
# User -> rules of its role.
RULES: dict[str, list[dict[str, Any]]] = {
    KUBE_ROUTER: [
        {
            "apiGroups": [""],
            "resources": ["namespaces", "pods", "services", "nodes", "endpoints"],
            "verbs": READ,
        },
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": READ},
        ENDPOINTS,
    ],
    COREDNS: [
        {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": READ},
        ENDPOINTS,
    ],
    METRICS_SERVER: [
        {
            "apiGroups": [""],
            "resources": ["namespaces", "pods", "nodes", "configmaps"],
            "verbs": READ,
        },
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
    ],
}


def objects() -> list[dict[str, Any]]:
    """Build the roles and bindings. Those of kubelets and kube-proxy are Kubernetes' own."""
    roles = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"penstock-local:{user}"},
            "rules": rules,
        }
        for user, rules in RULES.items()
    ]
    return [
        *roles,
        *(_binding(user, user, f"penstock-local:{user}") for user in RULES),
        _binding("kubelet-api", "kube-apiserver", "system:kubelet-api-admin"),
        # metrics-server asks the API server who its own clients are, and what they may do.
        _binding(f"{METRICS_SERVER}-auth", METRICS_SERVER, "system:auth-delegator"),
        _binding(
            f"{METRICS_SERVER}-auth-reader",
            METRICS_SERVER,
            "extension-apiserver-authentication-reader",
            namespace="kube-system",
        ),
    ]


def _binding(name: str, user: str, role: str, namespace: str = "") -> dict[str, Any]:
    """Bind a user to a role: of the cluster, or of a namespace."""
    group = "rbac.authorization.k8s.io"
    scope = "" if namespace else "Cluster"
    metadata = {"name": f"penstock-local:{name}"}
    return {
        "apiVersion": f"{group}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": group, "kind": f"{scope}Role", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
