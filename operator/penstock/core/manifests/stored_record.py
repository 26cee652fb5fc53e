"""ConfigMaps in which the operator stores state for its next start."""

import json
from dataclasses import dataclass
from typing import Any

from penstock.core.adapters.resource import AdapterResource
from penstock.core.formats.json_text import parse_json
from penstock.core.manifests import engine
from penstock.core.spec.service import (
    API_VERSION,
    MANAGED_BY,
    MANAGED_LABEL,
    SERVICE_LABEL,
    Object,
    ServiceSpec,
)


@dataclass(frozen=True, slots=True)
class RecordOwner:
    """The object that owns a record.

    prefix: of the ConfigMap's name, unique in the namespace. service: the InferenceService that the record
    is about. reference: owner reference.
    """

    namespace: str
    prefix: str
    service: str
    reference: Object

    @property
    def uid(self) -> str:
        uid: str = self.reference["uid"]
        return uid


def service_owner(spec: ServiceSpec) -> RecordOwner:
    return RecordOwner(spec.namespace, spec.name, spec.name, engine.owner(spec))


def adapter_prefix(name: str) -> str:
    """Prefix of a LoraAdapter's records; with a dot, which the name of a service cannot have."""
    return f"{name}.lora"


def adapter_owner(adapter: AdapterResource) -> RecordOwner:
    reference = {
        "apiVersion": API_VERSION,
        "kind": "LoraAdapter",
        "name": adapter.name,
        "uid": adapter.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return RecordOwner(adapter.namespace, adapter_prefix(adapter.name), adapter.service, reference)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """Kind of stored record. suffix: of the ConfigMap's name. key: in its data."""

    suffix: str
    key: str

    def name(self, prefix: str) -> str:
        """Name of the ConfigMap. prefix: of its owner, the name of a service."""
        return f"{prefix}-{self.suffix}"

    def config_map(self, owner: RecordOwner, record: Object) -> Object:
        """The ConfigMap with a record."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name(owner.prefix),
                "namespace": owner.namespace,
                "labels": {MANAGED_LABEL: MANAGED_BY, SERVICE_LABEL: owner.service},
                "ownerReferences": [owner.reference],
            },
            "data": {self.key: json.dumps(record, sort_keys=True, separators=(",", ":"))},
        }

    def record_of(self, body: Object, uid: str) -> Any:
        """Decode the record; None if it is malformed or belongs to a deleted object of the same name.

        uid: of the owner.
        """
        owners = body["metadata"].get("ownerReferences", [])
        if all(each.get("uid") != uid for each in owners):
            return None
        try:
            return parse_json(body.get("data", {}).get(self.key, ""))
        except ValueError:
            return None


# NAME-sizing: kept so that stored state stays readable.
LEARNED = StoredRecord("sizing", "learned.json")
TRIAL = StoredRecord("rollout", "trial.json")


def is_ours(body: Object) -> bool:
    """Whether Penstock created the object; another object may occupy its name."""
    return bool(body["metadata"].get("labels", {}).get(MANAGED_LABEL) == MANAGED_BY)
