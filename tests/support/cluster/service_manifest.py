"""Manifest of an InferenceService with the tiny model."""

from penstock.api.inferenceservice.kind import KIND
from penstock.core.spec.service import API_VERSION, Object

TINY: Object = {
    "model": {"uri": "pvc://models/penstock-tiny"},
    "resources": {"limits": {"memory": "1Gi"}},
}


def service_manifest(name: str, spec: Object) -> Object:
    """spec: its fields replace those of TINY."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": TINY | spec,
    }
