"""Manifests of Penstock's kinds."""

from copy import deepcopy

from penstock.core.spec.service import API_VERSION, Object

TINY: Object = {
    "model": {"uri": "pvc://models/penstock-tiny"},
    # A small request, so that some engines fit on a node with two CPUs.
    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": 1, "memory": "1Gi"}},
}
# Labels of a namespace in which every pod has to be restricted.
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def manifest(kind: str, name: str, spec: Object) -> Object:
    """An object of one of Penstock's kinds."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def service_manifest(name: str, spec: Object) -> Object:
    """An InferenceService with the tiny model. spec: its fields replace those of TINY."""
    return manifest("InferenceService", name, deepcopy(TINY) | spec)


def adapter_manifest(name: str, service: str, uri: str, **spec: object) -> Object:
    """A LoraAdapter of a service. spec: further fields."""
    return manifest(
        "LoraAdapter", name, {"serviceRef": {"name": service}, "model": {"uri": uri}, **spec}
    )


def route_manifest(name: str, *services: str, **rule: object) -> Object:
    """A ModelRoute whose only rule sends requests to services. rule: further fields of it."""
    backends = [{"name": service} for service in services]
    rules = [{"name": "all", "backendRefs": backends, **rule}]
    return manifest("ModelRoute", name, {"modelName": name, "rules": rules})
