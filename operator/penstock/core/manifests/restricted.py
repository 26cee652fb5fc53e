"""The restricted Pod Security Standard: security contexts that meet it, and the check of a pod against it."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from penstock.core.formats.strategic_merge import is_keyed, merge

Object = dict[str, Any]

POD: Final[Object] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
UNPRIVILEGED: Final = {k: v for k, v in CONTAINER.items() if k != "readOnlyRootFilesystem"}

VOLUME_SOURCES = frozenset(
    ("configMap", "secret", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected")
)  # fmt: skip
_PROFILES = ("RuntimeDefault", "Localhost")


def restrict_added(pod: Object, own: str) -> None:
    """Restrict the containers that a template adds, as far as their security contexts do not say otherwise.

    own: name of the container that is restricted already. Privileged containers are left alone: the API
    server refuses them with allowPrivilegeEscalation: false.
    """
    containers: Any = pod.get("containers")
    if not is_keyed(containers, "name"):
        return
    for container in containers:
        context = container.get("securityContext") or {}
        if container.get("name") == own or not isinstance(context, dict):
            continue
        if not context.get("privileged"):
            container["securityContext"] = merge(UNPRIVILEGED, context)


def broken_rules(
    pod: Object,
    host_paths: Collection[str],
    accounts: Collection[str],
    init_containers: Collection[str] = (),
) -> Iterator[str]:
    """Yield the path of each field by which a pod breaks the standard or gets a service account's identity.

    host_paths: folders of the node that volumes may have if they are mounted read-only.
    accounts: service accounts that the pod may have. init_containers: names of those that it may have.
    """
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    initial = pod.get("initContainers") or []
    if any(each.get("name") not in init_containers for each in initial):
        yield "initContainers"
    if pod.get("serviceAccountName") not in (None, *accounts):
        yield "serviceAccountName"
    if pod.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken"
    for volume in pod.get("volumes") or []:
        sources = {name for name in volume if name not in ("name", "hostPath")}
        source = volume.get("hostPath")
        if not sources <= VOLUME_SOURCES or (
            source is not None and source["path"] not in host_paths
        ):
            yield f"volumes[{volume['name']}]"
    shared = pod.get("securityContext") or {}
    folders = {each["name"] for each in pod.get("volumes") or [] if "hostPath" in each}
    for container in [*initial, *pod["containers"]]:
        for field in _broken_fields(container, shared, folders):
            yield f"containers[{container['name']}].{field}"


def _broken_fields(container: Object, shared: Object, folders: set[str]) -> Iterator[str]:
    """Yield the path of each such field of one container.

    shared: the pod's security context. folders: names of the volumes that are folders of the node.
    """
    context = container.get("securityContext") or {}
    capabilities = context.get("capabilities") or {}
    effective = shared | context
    is_kept = {
        "privileged": not context.get("privileged"),
        "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
        "capabilities": "ALL" in (capabilities.get("drop") or []) and not capabilities.get("add"),
        "runAsNonRoot": effective.get("runAsNonRoot") is True,
        "runAsUser": effective.get("runAsUser") != 0,
        "seccompProfile": (effective.get("seccompProfile") or {}).get("type") in _PROFILES,
    }
    yield from (f"securityContext.{name}" for name, kept in is_kept.items() if not kept)
    if any("hostPort" in port for port in container.get("ports") or []):
        yield "ports"
    for mount in container.get("volumeMounts") or []:
        if mount.get("name") in folders and mount.get("readOnly") is not True:
            yield "volumeMounts"
