"""The InferenceService of a dedicated pool: that of the adapter's service, with bounds of its own."""

from copy import deepcopy

from penstock.core.adapters.dedicated import ADAPTER_LABEL, dedicated_name
from penstock.core.adapters.resource import AdapterResource
from penstock.core.manifests.stored_record import adapter_owner
from penstock.core.observed.accepted_spec import spec_in_use
from penstock.core.spec.service import (
    GROUP,
    MANAGED_BY,
    MANAGED_LABEL,
    SERVICE_LABEL,
    Object,
)


def dedicated_service(parent: Object, adapter: AdapterResource) -> Object:
    """The dedicated pool of an adapter. parent: the adapter's service, whose accepted spec it has."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
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
        "spec": _spec(parent, adapter),
    }


def _spec(parent: Object, adapter: AdapterResource) -> Object:
    """The parent's spec with the bounds of the pool, scaled by Penstock.

    Minimums of variants are the parent's own. The model's name is the parent's too: engines are started with
    it, and no client uses it here.
    """
    spec = deepcopy(spec_in_use(parent))
    spec.pop("replicas", None)
    spec["model"]["name"] = spec["model"].get("name") or parent["metadata"]["name"]
    scaling = spec.setdefault("scaling", {})
    if scaling.get("mode") == "External":
        scaling["mode"] = "Active"
    scaling["minReplicas"] = adapter.bounds.min_replicas
    scaling["maxReplicas"] = adapter.bounds.max_replicas
    for variant in spec.get("variants") or ():
        variant["minReplicas"] = 0
    return spec
