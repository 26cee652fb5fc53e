"""Manifests of Penstock itself: namespace, service accounts, RBAC rules, operator, gateway."""

from collections.abc import Sequence
from copy import deepcopy

from penstock.chart.names import GATEWAY, NAMESPACE, OPERATOR, OPERATOR_PORT
from penstock.core.manifests import restricted
from penstock.core.manifests.disruption import budget
from penstock.core.spec.service import GROUP, MANAGED_BY, Object

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"

# The verbs in use and no others: e2e/revision_change compares these rules with the audit log.
OPERATOR_RULES: list[Object] = [
    {"apiGroups": [GROUP], "resources": ["inferenceservices"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [GROUP], "resources": ["inferenceservices/status"], "verbs": ["patch"]},
    {"apiGroups": [GROUP], "resources": ["modelroutes"], "verbs": ["list", "watch"]},
    {"apiGroups": [GROUP], "resources": ["modelroutes/status"], "verbs": ["patch"]},
    # Setting blockOwnerDeletion on a child requires this permission on its owner.
    {"apiGroups": [GROUP], "resources": ["inferenceservices/finalizers"], "verbs": ["update"]},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
    {
        "apiGroups": ["apps"],
        "resources": ["controllerrevisions"],
        "verbs": ["list", "create", "patch", "delete"],
    },
    {
        "apiGroups": ["policy"],
        "resources": ["poddisruptionbudgets"],
        "verbs": ["list", "create", "patch", "delete"],
    },
    # Evaluation Jobs of canaries.
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "create", "patch", "delete"]},
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["list", "watch", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list", "watch"],
    },
]
LEASE_RULES: list[Object] = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    }
]
GATEWAY_RULES: list[Object] = [
    {
        "apiGroups": [GROUP],
        "resources": ["inferenceservices", "modelroutes"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
]


def system_manifests(
    image: str,
    *,
    gateway_port: int,
    host_network: bool,
    replicas: int,
    operator_args: Sequence[str] = (),
) -> list[Object]:
    """All objects except the CRDs, in the order to apply.

    host_network: the gateway listens on its node's address, for clusters without load balancers.
    operator_args: additional command-line arguments of the operator.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": _labels("namespace")},
        },
        *_account(OPERATOR, OPERATOR_RULES),
        *_account(GATEWAY, GATEWAY_RULES),
        *_lease_rights(),
        _operator(image, replicas, operator_args),
        _gateway(image, gateway_port, host_network, replicas),
        *(budget(name, NAMESPACE, _labels(name), _selector(name)) for name in (OPERATOR, GATEWAY)),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": GATEWAY, "namespace": NAMESPACE, "labels": _labels(GATEWAY)},
            "spec": {
                "selector": _selector(GATEWAY),
                "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
            },
        },
    ]


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": MANAGED_BY}


def _selector(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}


def _anti_affinity(name: str) -> Object:
    """Preferred pod anti-affinity across nodes, so that one node's failure does not stop all replicas."""
    term = {
        "labelSelector": {"matchLabels": _selector(name)},
        "topologyKey": "kubernetes.io/hostname",
    }
    preferred = {"weight": 100, "podAffinityTerm": term}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}


def _account(name: str, rules: list[Object]) -> list[Object]:
    api = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": _labels(name)},
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": _labels(name)},
            "rules": rules,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": _labels(name)},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        },
    ]


def _lease_rights() -> list[Object]:
    api = "rbac.authorization.k8s.io"
    metadata = {"name": OPERATOR, "namespace": NAMESPACE, "labels": _labels(OPERATOR)}
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": LEASE_RULES,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": OPERATOR},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}],
        },
    ]


def _operator(image: str, replicas: int, operator_args: Sequence[str]) -> Object:
    container = {
        "command": ["penstock"],
        "args": [
            "operator", "run", f"--engine-image={image}", "--host=$(POD_IP)",
            f"--port={OPERATOR_PORT}", *operator_args,
        ],
        "ports": [{"name": "http", "containerPort": OPERATOR_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "512Mi"},
        },
    }  # fmt: skip
    return _deployment(OPERATOR, image, replicas, container, grace_s=10)


def _gateway(image: str, port: int, host_network: bool, replicas: int) -> Object:
    container = {
        "command": ["penstock"],
        "args": ["gateway", "run", "--host=$(POD_IP)", f"--port={port}"],
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
    }
    deployment = _deployment(GATEWAY, image, replicas, container, grace_s=90)
    pod = deployment["spec"]["template"]["spec"]
    if host_network:
        pod["hostNetwork"] = True
        # Two gateways cannot share the node's port, so the old pod must stop before the new one starts.
        deployment["spec"]["strategy"] = {"type": "Recreate"}
    return deployment


def _deployment(name: str, image: str, replicas: int, container: Object, *, grace_s: int) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": _labels(name)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _selector(name)},
            "template": {
                "metadata": {"labels": _labels(name)},
                "spec": {
                    "serviceAccountName": name,
                    "enableServiceLinks": False,
                    "affinity": {"podAntiAffinity": _anti_affinity(name)},
                    "terminationGracePeriodSeconds": grace_s,
                    "securityContext": deepcopy(restricted.POD),
                    "containers": [_container(name, image) | container],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def _container(name: str, image: str) -> Object:
    def probe(path: str, failures: int) -> Object:
        return {
            "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        }

    return {
        "name": name.removeprefix("penstock-"),
        "image": image,
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "PENSTOCK_SERVICE_ACCOUNT_DIR", "value": SERVICE_ACCOUNT_DIR},
        ],
        "securityContext": deepcopy(restricted.CONTAINER),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - the pod's own
        "startupProbe": probe("/readyz", 60),
        "readinessProbe": probe("/readyz", 2),
        "livenessProbe": probe("/healthz", 10),
    }
