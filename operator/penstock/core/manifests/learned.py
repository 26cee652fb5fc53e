"""The ConfigMap that keeps what sizing has learned of a service."""

import json
from typing import Any

from penstock.core.manifests.engine import owner
from penstock.core.service import (
    MANAGED_BY,
    MANAGED_LABEL,
    SERVICE_LABEL,
    Object,
    ServiceSpec,
)

KEY = "learned.json"


def name(service: str) -> str:
    return f"{service}-sizing"


def config_map(spec: ServiceSpec, record: Object) -> Object:
    """Deleted with its service."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name(spec.name),
            "namespace": spec.namespace,
            "labels": {MANAGED_LABEL: MANAGED_BY, SERVICE_LABEL: spec.name},
            "ownerReferences": [owner(spec)],
        },
        "data": {KEY: json.dumps(record, sort_keys=True, separators=(",", ":"))},
    }


def is_ours(body: Object) -> bool:
    """Whether Penstock made it: somebody else's may have the name."""
    return bool(body["metadata"].get("labels", {}).get(MANAGED_LABEL) == MANAGED_BY)


def record_of(body: Object, uid: str) -> Any:
    """What it holds; None when it was made for an earlier service of the name."""
    owners = body["metadata"].get("ownerReferences", [])
    if all(each.get("uid") != uid for each in owners):
        return None
    try:
        return json.loads(body.get("data", {}).get(KEY, ""))
    except ValueError:
        return None
