"""ConfigMaps that keep what the operator has to know again after a restart."""

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
class Kept:
    """One kind of record: the end of its ConfigMap's name, and the key in it."""

    suffix: str
    key: str

    def name(self, service: str) -> str:
        return f"{service}-{self.suffix}"

    def config_map(self, spec: ServiceSpec, record: Object) -> Object:
        """Deleted with its service."""
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
        """What it holds; None when it was made for an earlier service of the name."""
        owners = body["metadata"].get("ownerReferences", [])
        if all(each.get("uid") != uid for each in owners):
            return None
        try:
            return json.loads(body.get("data", {}).get(self.key, ""))
        except ValueError:
            return None


SIZING = Kept("sizing", "learned.json")
TRIAL = Kept("rollout", "trial.json")


def is_ours(body: Object) -> bool:
    """Whether Penstock made it: somebody else's may have the name."""
    return bool(body["metadata"].get("labels", {}).get(MANAGED_LABEL) == MANAGED_BY)
