"""ConfigMaps in which the operator stores state for its next start."""

import json
from dataclasses import dataclass
from typing import Any

from penstock.core.manifests.engine import owner
from penstock.core.spec.service import (
    MANAGED_BY,
    MANAGED_LABEL,
    SERVICE_LABEL,
    Object,
    ServiceSpec,
)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """Kind of stored record. suffix: of the ConfigMap's name. key: in its data."""

    suffix: str
    key: str

    def name(self, service: str) -> str:
        return f"{service}-{self.suffix}"

    def config_map(self, spec: ServiceSpec, record: Object) -> Object:
        """The ConfigMap with a record; owned by the service."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name(spec.name),
                "namespace": spec.namespace,
                "labels": {MANAGED_LABEL: MANAGED_BY, SERVICE_LABEL: spec.name},
                "ownerReferences": [owner(spec)],
            },
            "data": {self.key: json.dumps(record, sort_keys=True, separators=(",", ":"))},
        }

    def record_of(self, body: Object, uid: str) -> Any:
        """Decode the record; None if it is malformed or belongs to a deleted service of the same name.

        uid: of the service.
        """
        owners = body["metadata"].get("ownerReferences", [])
        if all(each.get("uid") != uid for each in owners):
            return None
        try:
            return json.loads(body.get("data", {}).get(self.key, ""))
        except ValueError:
            return None


SIZING = StoredRecord("sizing", "learned.json")
TRIAL = StoredRecord("rollout", "trial.json")


def is_ours(body: Object) -> bool:
    """Whether Penstock created the object; another object may occupy its name."""
    return bool(body["metadata"].get("labels", {}).get(MANAGED_LABEL) == MANAGED_BY)
