"""Manifest of a ControllerRevision, which records a revision of a service."""

from penstock.core.manifests.engine import deployment_name, owner
from penstock.core.spec.history import PODS_ANNOTATION, STABLE_ANNOTATION, Revision
from penstock.core.spec.service import (
    MANAGED_BY,
    MANAGED_LABEL,
    REVISION_LABEL,
    SERVICE_LABEL,
    Object,
    ServiceSpec,
)


def controller_revision(spec: ServiceSpec, entry: Revision) -> Object:
    """The ControllerRevision of a history entry; owned by the service."""
    annotations = {}
    if entry.pods is not None:
        annotations[PODS_ANNOTATION] = entry.pods.as_text()
    if entry.was_stable:
        annotations[STABLE_ANNOTATION] = "true"
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": deployment_name(spec, entry.revision),
            "namespace": spec.namespace,
            "labels": {
                MANAGED_LABEL: MANAGED_BY,
                SERVICE_LABEL: spec.name,
                REVISION_LABEL: entry.revision,
            },
            "annotations": annotations,
            "ownerReferences": [owner(spec)],
        },
        "data": entry.recorded_fields,
        "revision": entry.number,
    }
