"""Pod placement: sets the fields of a pod that depend on its variant's nodes."""

from copy import deepcopy
from typing import Any

from penstock.core.formats.strategic_merge import is_keyed, merge
from penstock.core.runtimes.devices import DEVICE_FLAG, RANKS_FLAG
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.service import ENGINE_CONTAINER, Object, ServiceSpec
from penstock.core.spec.settings import TENSOR_PARALLEL

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
            values = {each["name"]: each for each in runtime_of(spec.settings).environment(spec)}
            env, args = container.get("env", []), container.get("args", [])
            if is_keyed(env, "name"):
                container["env"] = [values.get(each.get("name"), each) for each in env]
            if isinstance(args, list):
                container["args"] = _with_device(args, spec)
            if resources is not None:
                container["resources"] = resources
    add_shared_memory(placed, spec)
    merged: Object = merge(placed, overrides)
    return merged


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


def _with_device(args: list[Any], spec: ServiceSpec) -> list[Any]:
    """The arguments with the flags of the variant's devices, in place of those of others."""
    flags = runtime_of(spec.settings).device_flags(spec)
    # Ranks that the spec sets itself are the same on all variants.
    names = (DEVICE_FLAG,) if TENSOR_PARALLEL in spec.settings else (DEVICE_FLAG, RANKS_FLAG)
    at = next((i for i, arg in enumerate(args) if str(arg).startswith(names)), None)
    if at is None:
        return args  # the user's own
    kept = [arg for arg in args if not str(arg).startswith(names)]
    return [*kept[:at], *flags, *kept[at:]]
