"""The kinds of objects that Penstock reads or writes, and their paths in the API server."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, and its path in the API server."""

    api: str  # "v1" or "group/version"
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, sub: str = "") -> str:
        root = f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"
        scope = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        tail = f"/{quote(name)}" if name else ""
        return f"{root}{scope}/{self.plural}{tail}{f'/{sub}' if sub else ''}"


PODS = Resource("v1", "pods")
NODES = Resource("v1", "nodes", namespaced=False)
EVENTS = Resource("v1", "events")
SERVICES = Resource("v1", "services")
SECRETS = Resource("v1", "secrets")
CONFIG_MAPS = Resource("v1", "configmaps")
RESOURCE_QUOTAS = Resource("v1", "resourcequotas")
NAMESPACES = Resource("v1", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts")
VOLUME_CLAIMS = Resource("v1", "persistentvolumeclaims")
VOLUMES = Resource("v1", "persistentvolumes", namespaced=False)
LEASES = Resource("coordination.k8s.io/v1", "leases")
DEPLOYMENTS = Resource("apps/v1", "deployments")
DAEMON_SETS = Resource("apps/v1", "daemonsets")
CONTROLLER_REVISIONS = Resource("apps/v1", "controllerrevisions")
JOBS = Resource("batch/v1", "jobs")
DISRUPTION_BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False
)
ROLES = Resource("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "rolebindings")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "networkpolicies")
HORIZONTAL_POD_AUTOSCALERS = Resource("autoscaling/v2", "horizontalpodautoscalers")
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io/v1", "flowschemas", namespaced=False)
PRIORITY_LEVELS = Resource(
    "flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", namespaced=False
)
ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
)
ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
RESOURCE_SLICES = Resource("resource.k8s.io/v1", "resourceslices", namespaced=False)
CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io/v1", "tokenreviews", namespaced=False)
INFERENCE_SERVICES = Resource("serving.penstock.dev/v1alpha1", "inferenceservices")
MODEL_ROUTES = Resource("serving.penstock.dev/v1alpha1", "modelroutes")
LORA_ADAPTERS = Resource("serving.penstock.dev/v1alpha1", "loraadapters")
TENANTS = Resource("serving.penstock.dev/v1alpha1", "tenants", namespaced=False)
EXTERNAL_MODELS = Resource("serving.penstock.dev/v1alpha1", "externalmodels")

KINDS = {
    "ConfigMap": CONFIG_MAPS,
    "Pod": PODS,
    "Namespace": NAMESPACES,
    "Service": SERVICES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "PersistentVolume": VOLUMES,
    "PersistentVolumeClaim": VOLUME_CLAIMS,
    "ControllerRevision": CONTROLLER_REVISIONS,
    "Deployment": DEPLOYMENTS,
    "DaemonSet": DAEMON_SETS,
    "Job": JOBS,
    "PodDisruptionBudget": DISRUPTION_BUDGETS,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
    "NetworkPolicy": NETWORK_POLICIES,
    "HorizontalPodAutoscaler": HORIZONTAL_POD_AUTOSCALERS,
    "FlowSchema": FLOW_SCHEMAS,
    "PriorityLevelConfiguration": PRIORITY_LEVELS,
    "ValidatingAdmissionPolicy": ADMISSION_POLICIES,
    "ValidatingAdmissionPolicyBinding": ADMISSION_POLICY_BINDINGS,
    "CustomResourceDefinition": CRDS,
    "InferenceService": INFERENCE_SERVICES,
    "ModelRoute": MODEL_ROUTES,
    "LoraAdapter": LORA_ADAPTERS,
    "Tenant": TENANTS,
    "ExternalModel": EXTERNAL_MODELS,
    "Event": EVENTS,
}
