"""The InferenceService of a dedicated pool: that of the adapter's service, with bounds of its own."""

from copy import deepcopy

from penstock.core.adapters.dedicated import ADAPTER_LABEL, dedicated_name
from penstock.core.adapters.resource import AdapterResource
from penstock.core.manifests.stored_record import adapter_owner
from penstock.core.observed.accepted_spec import spec_in_use
from penstock.core.observed.stored_status import stored_status
from penstock.core.spec.service import (
    API_VERSION,
    MANAGED_BY,
    MANAGED_LABEL,
    SERVICE_LABEL,
    Object,
)


def parent_not_ready(parent: Object) -> str:
    """Why the parent's spec cannot be copied to a new pool yet; empty if it can.

    A pool's first revision gets all requests at once. It must not be one that the parent still judges, or
    has rejected. The first revision of the parent is not compared with anything.
    """
    name, status = parent["metadata"]["name"], stored_status(parent)
    if not status.get("stableRevision"):
        return ""
    if status.get("observedGeneration") != parent["metadata"].get("generation"):
        return f"the operator has not read the present spec of {name} yet"
    phase = (status.get("rollout") or {}).get("phase") or "Stable"
    if phase == "Rejected":
        return f"the present spec of {name} was rejected by its rollout; change or undo it"
    # RevisionPending: the rollout of the spec starts in a moment.
    reasons = {each["reason"] for each in status.get("conditions") or ()}
    if phase != "Stable" or "RevisionPending" in reasons:
        return f"the present spec of {name} is being rolled out"
    return ""


def dedicated_service(
    parent: Object, adapter: AdapterResource, stored: Object | None = None
) -> Object:
    """Builds the InferenceService that is an adapter's dedicated pool.

    parent: the adapter's service, whose accepted spec is copied. stored: the pool as stored; None for a new
    one. While the parent's spec cannot be copied, a stored pool keeps its own, apart from the bounds.
    """
    source = stored if stored is not None and parent_not_ready(parent) else parent
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {
            "name": dedicated_name(adapter.service, adapter.name),
            "namespace": adapter.namespace,
            "labels": {
                MANAGED_LABEL: MANAGED_BY,
                SERVICE_LABEL: adapter.service,
                ADAPTER_LABEL: adapter.name,
            },
            "ownerReferences": [adapter_owner(adapter).reference],
        },
        "spec": _spec(source, adapter),
    }


def _spec(parent: Object, adapter: AdapterResource) -> Object:
    """The spec of the parent, or of the stored pool, with the bounds of the pool, scaled by Penstock.

    Its mode is Active: its bounds are the user's own, and in another mode it would not start their minimum.
    Promotion is automatic: the parent has been promoted with the same spec. Variants have no minimum: the
    parent's minimums are for its own engines. A pool is never at zero, as its minimum is at least 1. The
    model's name is the parent's, as engines are started with it; no client uses it here.
    """
    spec = deepcopy(spec_in_use(parent))
    spec.pop("replicas", None)
    spec["model"]["name"] = spec["model"].get("name") or parent["metadata"]["name"]
    scaling = spec.get("scaling") or {}
    scaling.pop("idleAfter", None)
    spec["scaling"] = scaling | {
        "mode": "Active",
        "minReplicas": adapter.bounds.min_replicas,
        "maxReplicas": adapter.bounds.max_replicas,
    }
    rollout = spec.get("rollout") or {}
    rollout.pop("atZero", None)
    (rollout.get("blueGreen") or {}).pop("promotion", None)
    for variant in spec.get("variants") or ():
        variant["minReplicas"] = 0
    return spec
