"""Pod placement: sets the fields of a pod that depend on its variant's nodes."""

from copy import deepcopy
from typing import Any

from penstock.core.formats.strategic_merge import is_keyed, merge
from penstock.core.spec.service import ENGINE_CONTAINER, Object, ServiceSpec

_DEVICE, _RANKS = "--device=", "--tensor-parallel-size="
_SHM = "shm"


def place(
    pod: Object, spec: ServiceSpec, overrides: Object, resources: Object | None = None
) -> Object:
    """Replace a pod spec's node selection and sizing by that of a variant, and keep everything else.

    spec: as placed on the variant. overrides: the pod spec in the user's template. resources: of the
    engine's container; None keeps them.
    """
    placed = deepcopy(pod)
    for field in ("nodeSelector", "tolerations"):
        placed.pop(field, None)
    for container in placed["containers"]:
        if container["name"] == ENGINE_CONTAINER:
            values = {each["name"]: each for each in size_variables(spec)}
            env, args = container.get("env", []), container.get("args", [])
            if is_keyed(env, "name"):
                container["env"] = [values.get(each.get("name"), each) for each in env]
            if isinstance(args, list):
                container["args"] = _with_device(args, device_flags(spec))
            if resources is not None:
                container["resources"] = resources
    add_shared_memory(placed, spec)
    merged: Object = merge(placed, overrides)
    return merged


def size_variables(spec: ServiceSpec) -> list[Object]:
    """Environment variables with the pod's memory and CPU limits, for the engine's sizing."""
    return [
        {"name": "PENSTOCK_MEMORY_LIMIT_BYTES", "value": str(spec.resources.memory_bytes)},
        {"name": "PENSTOCK_CPU_LIMIT", "value": str(spec.resources.threads)},
    ]


def device_flags(spec: ServiceSpec) -> list[str]:
    """Flags of the device, and of the ranks that share several of them."""
    flags = [f"{_DEVICE}{spec.resources.device}"]
    if spec.resources.num_accelerators > 1:
        flags.append(f"{_RANKS}{spec.resources.num_accelerators}")
    return flags


def add_shared_memory(pod: Object, spec: ServiceSpec) -> None:
    """Give an engine with several accelerators a /dev/shm of more than 64 MiB: its ranks use it."""
    volumes = pod.setdefault("volumes", [])
    if spec.resources.num_accelerators < 2 or any(each.get("name") == _SHM for each in volumes):
        return
    volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory"}})
    for container in pod["containers"]:
        if container["name"] == ENGINE_CONTAINER:
            mounts = container.setdefault("volumeMounts", [])
            mounts.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - the pod's own


def _with_device(args: list[Any], flags: list[str]) -> list[Any]:
    """The arguments with other device flags, at the same place."""
    placed: list[Any] = []
    for arg in args:
        if str(arg).startswith(_DEVICE):
            placed += flags
        elif not (str(arg).startswith(_RANKS) and placed[-len(flags) :] == flags):
            placed.append(arg)
    return placed
