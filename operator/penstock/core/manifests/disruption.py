"""PodDisruptionBudgets: a node drain takes one pod at a time."""

from penstock.core.manifests.engine import owner
from penstock.core.service import (
    MANAGED_BY,
    MANAGED_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    Object,
    ServiceSpec,
)


def budget(name: str, namespace: str, labels: Object, match_labels: Object) -> Object:
    """Of pods with these labels at most one may be missing. A pod that is not ready may always go: it
    would hold up the drain, and answers nobody."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": match_labels},
        },
    }


def engines_budget_name(service: str) -> str:
    return f"{service}-engines"


def engines_budget(spec: ServiceSpec) -> Object:
    """The budget of all engines of a service, whatever their revision. Deleted with its service."""
    made = budget(
        engines_budget_name(spec.name),
        spec.namespace,
        {MANAGED_LABEL: MANAGED_BY, SERVICE_LABEL: spec.name},
        {SERVICE_LABEL: spec.name, ROLE_LABEL: SERVE},
    )
    made["metadata"]["ownerReferences"] = [owner(spec)]
    return made
