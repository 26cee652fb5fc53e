"""PodDisruptionBudgets, which let a node drain evict one pod at a time."""

from penstock.core.manifests.engine import owner
from penstock.core.spec.service import (
    MANAGED_BY,
    MANAGED_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    Object,
    ServiceSpec,
)


def budget(name: str, namespace: str, labels: Object, match_labels: Object) -> Object:
    """A PodDisruptionBudget by which at most one of the matching pods may be unavailable.

    Pods that are not ready may always be evicted: they serve nobody and would block the drain.
    """
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
    """The PodDisruptionBudget of all engines of a service, of any revision; owned by the service."""
    made = budget(
        engines_budget_name(spec.name),
        spec.namespace,
        {MANAGED_LABEL: MANAGED_BY, SERVICE_LABEL: spec.name},
        {SERVICE_LABEL: spec.name, ROLE_LABEL: SERVE},
    )
    made["metadata"]["ownerReferences"] = [owner(spec)]
    return made
