"""Pods and containers of Penstock's own programs: restricted, with a writable /tmp and the pod's address."""

from collections.abc import Sequence
from copy import deepcopy

from penstock.core.manifests import restricted
from penstock.core.spec.service import Object

POD_IP: Object = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
TMP = "tmp"  # name of the volume that `own_pod` has and `own_container` mounts


def own_container(name: str, image: str, command: Sequence[str], args: Sequence[str]) -> Object:
    """A container without resources. command: empty for that of the image."""
    return {
        "name": name,
        "image": image,
        **({"command": list(command)} if command else {}),
        "args": list(args),
        "env": [deepcopy(POD_IP)],
        "securityContext": deepcopy(restricted.CONTAINER),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": TMP, "mountPath": "/tmp"}],  # noqa: S108 - the pod's own
    }


def own_pod(container: Object) -> Object:
    """A pod spec with one container."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": deepcopy(restricted.POD),
        "containers": [container],
        "volumes": [{"name": TMP, "emptyDir": {}}],
    }
