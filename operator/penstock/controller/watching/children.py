"""Deployments and pods of a service, among those of all services."""

from collections.abc import Iterable

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.core.observed.children import ObservedDeployment, own_pods, owner_uid
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import SERVICE_LABEL


def by_service(children: Iterable[Object]) -> dict[Key, list[Object]]:
    """Group Deployments or pods by the namespace and name of their service."""
    found: dict[Key, list[Object]] = {}
    for child in children:
        metadata = child["metadata"]
        key = metadata["namespace"], metadata.get("labels", {}).get(SERVICE_LABEL, "")
        found.setdefault(key, []).append(child)
    return found


def children_of(
    body: Object, deployments: Iterable[Object], pods: Iterable[Object]
) -> tuple[list[ObservedDeployment], tuple[ObservedPod, ...]]:
    """Return the Deployments and pods of this service.

    Those of a deleted service of the same name are left out.
    """
    metadata = body["metadata"]
    uid, created_at = metadata["uid"], metadata["creationTimestamp"]
    own = [ObservedDeployment.of(each) for each in deployments if owner_uid(each) == uid]
    return own, own_pods(map(ObservedPod.of, pods), own, uid, created_at)
