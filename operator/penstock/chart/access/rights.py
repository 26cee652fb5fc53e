"""Access rights of operator and gateway.

They have only the verbs in use: e2e/revision_change compares these rules with the audit log.
"""

from penstock.chart.names import (
    BATCH,
    GATEWAY,
    GATEWAY_PODS_ROLE,
    KEYS_ROLE,
    LEASE_ROLE,
    OPERATOR,
    labels,
)
from penstock.chart.tree import If, OtherNamespace, ReleaseNamespace, Text, Tree, Value
from penstock.core.manifests.network import ENGINES_POLICY_NAME
from penstock.core.spec.service import GROUP, Object

_API = "rbac.authorization.k8s.io"

# Granted in every namespace, or in that of `watchNamespace`.
OPERATOR_RULES: list[Object] = [
    # Services of users are only read. Those that are created, patched and deleted are dedicated pools of
    # adapters; RBAC has no rule for the objects that somebody owns.
    {
        "apiGroups": [GROUP],
        "resources": ["inferenceservices"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [GROUP], "resources": ["inferenceservices/status"], "verbs": ["patch"]},
    {
        "apiGroups": [GROUP],
        "resources": ["modelroutes", "loraadapters", "externalmodels"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": [GROUP],
        "resources": ["modelroutes/status", "loraadapters/status"],
        "verbs": ["patch"],
    },
    # Setting blockOwnerDeletion on a child requires this permission on its owner.
    {
        "apiGroups": [GROUP],
        "resources": ["inferenceservices/finalizers", "loraadapters/finalizers"],
        "verbs": ["update"],
    },
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
        "verbs": ["list", "watch", "create", "patch", "delete"],
    },
    {
        "apiGroups": ["networking.k8s.io"],
        "resources": ["networkpolicies"],
        "verbs": ["list", "watch", "create"],
    },
    {
        "apiGroups": ["networking.k8s.io"],
        "resources": ["networkpolicies"],
        "resourceNames": [ENGINES_POLICY_NAME],
        "verbs": ["patch", "delete"],
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
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "create", "patch"]},
]
# Granted where all namespaces are watched. An operator of one namespace needs the CRDs at its start, and
# does not know the memory of accelerators, which nodes and ResourceSlices say.
CLUSTER_RULES: list[Object] = [
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]},
]
# Granted in the namespace of the installation.
LEASE_RULES: list[Object] = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    }
]
# Granted there too if the rules of both are granted in another namespace: the operator reads the gateways,
# and gateways count each other.
GATEWAY_PODS_RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
]
GATEWAY_RULES: list[Object] = [
    {
        "apiGroups": [GROUP],
        "resources": ["inferenceservices", "modelroutes", "loraadapters", "externalmodels"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
]
# Granted in the whole cluster, whatever is watched: Tenants belong to no namespace.
OPERATOR_TENANT_RULES: list[Object] = [
    {"apiGroups": [GROUP], "resources": ["tenants"], "verbs": ["list", "watch"]},
    {"apiGroups": [GROUP], "resources": ["tenants/status"], "verbs": ["patch"]},
]
# Granted in the namespace of API keys, which has nothing else.
GATEWAY_KEYS_RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
]
GATEWAY_TENANT_RULES: list[Object] = [
    {"apiGroups": [GROUP], "resources": ["tenants"], "verbs": ["list", "watch"]},
    # Tokens of ServiceAccounts that Tenants name.
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
]
_KEYS_NAMESPACE_IS_TAKEN = (
    "gateway.keysNamespace must not be the release's namespace, as gateways may list all Secrets in it; "
    "choose one that has nothing else"
)


def rights() -> list[Tree]:
    """The service accounts, their roles and the bindings, in the order to apply."""
    return [
        _account(OPERATOR, "operator"),
        _account(GATEWAY, "gateway"),
        If("batch.enabled", _account(BATCH, "batch")),
        *_role(OPERATOR, OPERATOR_RULES, CLUSTER_RULES + OPERATOR_TENANT_RULES),
        *_role(GATEWAY, GATEWAY_RULES, GATEWAY_TENANT_RULES),
        *_tenant_role(OPERATOR, OPERATOR_TENANT_RULES),
        *_tenant_role(GATEWAY, GATEWAY_TENANT_RULES),
        *_lease_role(),
        *_gateway_pods_role(),
        *_keys_role(),
    ]


def _account(name: str, component: str) -> Tree:
    annotations = f"{component}.serviceAccount.annotations"
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": name,
            "namespace": ReleaseNamespace(),
            "labels": labels(name),
            "annotations": If(annotations, Value(annotations)),
        },
        "automountServiceAccountToken": False,
    }


def _role(name: str, rules: list[Object], cluster_rules: list[Object]) -> list[Tree]:
    """The role with its binding: in all namespaces, or in that of `watchNamespace`."""
    return [
        If("watchNamespace", role, cluster_role)
        for role, cluster_role in zip(
            _role_and_binding("", name, rules, Value("watchNamespace")),
            _role_and_binding("Cluster", name, rules + cluster_rules, None),
            strict=True,
        )
    ]


def _tenant_role(account: str, rules: list[Object]) -> list[Tree]:
    """The ClusterRole with its binding where only `watchNamespace` is watched.

    Its name has the namespace of the installation, as a cluster may have several that watch one each.
    """
    name = {"name": Text.of(account, "-tenants-", ReleaseNamespace())}
    role, binding = _role_and_binding("Cluster", account, rules, None)
    role |= {"metadata": role["metadata"] | name}
    binding |= {"metadata": role["metadata"], "roleRef": binding["roleRef"] | name}
    enabled = "tenantRoles.enabled"
    return [If("watchNamespace", If(enabled, each)) for each in (role, binding)]


def _lease_role() -> list[Tree]:
    """The operator's role in the namespace of the installation, with its binding."""
    role, binding = _role_and_binding("", LEASE_ROLE, LEASE_RULES, ReleaseNamespace())
    pods = [If("watchNamespace", rule) for rule in GATEWAY_PODS_RULES]
    subject = binding["subjects"][0] | {"name": OPERATOR}
    return [role | {"rules": [*LEASE_RULES, *pods]}, binding | {"subjects": [subject]}]


def _gateway_pods_role() -> list[Tree]:
    """The gateway's role to count gateways, where its other rules are granted in another namespace."""
    namespace = ReleaseNamespace()
    role, binding = _role_and_binding("", GATEWAY_PODS_ROLE, GATEWAY_PODS_RULES, namespace)
    subject = binding["subjects"][0] | {"name": GATEWAY}
    return [If("watchNamespace", each) for each in (role, binding | {"subjects": [subject]})]


def _keys_role() -> list[Tree]:
    """The namespace of API keys, and the gateway's role in it with its binding.

    Helm keeps the namespace: with it all keys would be deleted.
    """
    name = Value("gateway.keysNamespace")
    metadata = {
        "name": OtherNamespace(name.path, _KEYS_NAMESPACE_IS_TAKEN),
        "labels": labels(KEYS_ROLE),
        "annotations": {"helm.sh/resource-policy": "keep"},
    }
    role, binding = _role_and_binding("", KEYS_ROLE, GATEWAY_KEYS_RULES, name)
    subject = binding["subjects"][0] | {"name": GATEWAY}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
        role,
        binding | {"subjects": [subject]},
    ]


def _role_and_binding(
    scope: str, name: str, rules: list[Object], namespace: Tree | None
) -> list[Tree]:
    """A Role and a RoleBinding, or with scope "Cluster" a ClusterRole and a ClusterRoleBinding."""
    metadata: Object = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = labels(name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": ReleaseNamespace()}
    return [
        {
            "apiVersion": f"{_API}/v1",
            "kind": f"{scope}Role",
            "metadata": metadata,
            "rules": rules,
        },
        {
            "apiVersion": f"{_API}/v1",
            "kind": f"{scope}RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _API, "kind": f"{scope}Role", "name": name},
            "subjects": [subject],
        },
    ]
