"""Pod placement: sets the fields of a pod that depend on its variant's nodes."""

from copy import deepcopy
from typing import Any

from penstock.core.formats.strategic_merge import is_keyed, merge
from penstock.core.manifests.model_fetch import with_engine_share
from penstock.core.runtimes.devices import DEVICE_FLAG, RANKS_FLAG
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.service import ENGINE_CONTAINER, Object, ServiceSpec

_SHM = "shm"


def place(
    pod: Object, spec: ServiceSpec, overrides: Object, resources: Object | None = None
) -> Object:
    """The pod spec with the node selection and the sizes of a variant. Everything else is kept.

    spec: as placed on the variant. overrides: the pod spec in the user's template. resources: of the
    engine's container; None keeps them.
    """
    placed = deepcopy(pod)
    for field in ("nodeSelector", "tolerations"):
        placed.pop(field, None)
    for container in placed["containers"]:
        if container["name"] == ENGINE_CONTAINER:
            env, args = container.get("env", []), container.get("args", [])
            if is_keyed(env, "name"):
                container["env"] = _with_sizes(env, spec, is_engine=resources is not None)
            if isinstance(args, list):
                container["args"] = _with_device(args, spec)
            if resources is not None:
                container["resources"] = resources
    if resources is not None:
        with_engine_share(placed, resources)
    if resources is not None and spec.resources.num_accelerators > 1:
        # Engines of this version have one already: a limit would change those that an earlier one recorded.
        mount_shared_memory(placed, None)
    merged: Object = merge(placed, overrides)
    return merged


def with_accelerator_memory(pod: Object, memory_bytes: int | None) -> Object:
    """The preflight pod with the memory of accelerators, for its check; None: unknown, so none is added.

    It is a variable and not a flag, because engines of older images ignore unknown variables.
    """
    if memory_bytes is None:
        return pod
    found = deepcopy(pod)
    variable = {"name": "PENSTOCK_ACCELERATOR_MEMORY_BYTES", "value": str(memory_bytes)}
    for container in found["spec"]["containers"]:
        if container["name"] == ENGINE_CONTAINER:
            env = container.get("env", [])
            container["env"] = [*env, variable] if isinstance(env, list) else env
    return found


def mount_shared_memory(pod: Object, size_gib: int | None) -> None:
    """Mount a volume at the engine's /dev/shm, of 64 MiB otherwise, unless there is one.

    size_gib: its limit; None: without a limit.
    """
    volumes = pod.setdefault("volumes", [])
    # The API server refuses other volumes, which the user's template may set.
    if not is_keyed(volumes, "name") or any(each.get("name") == _SHM for each in volumes):
        return
    limit = {} if size_gib is None else {"sizeLimit": f"{size_gib}Gi"}
    volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory", **limit}})
    for container in pod["containers"]:
        if container["name"] == ENGINE_CONTAINER:
            mounts = container.setdefault("volumeMounts", [])
            if is_keyed(mounts, "mountPath"):
                mounts.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - the pod's own


def shared_memory_gib(spec: ServiceSpec) -> int | None:
    """Size limit of /dev/shm for the service's variant with most GPUs; None if no variant has two.

    NCCL passes data between the GPUs of a node through it where they cannot reach each other's memory: some
    megabytes for each pair and channel. Its documentation wants 1 GiB for a container, so each GPU gets that.
    It is a limit, not a reservation: only pages in use count, against limits.memory of the container.
    """
    count = max(map(_num_gpus, spec.placed.values()))
    return count if count > 1 else None


def _num_gpus(spec: ServiceSpec) -> int:
    """The number of accelerators; that of ranks if they are claimed, as a claim does not tell how many."""
    if not spec.resources.claims:
        return spec.resources.num_accelerators
    tensor: int = spec.settings.get("engine.parallelism.tensor", 1)
    pipeline: int = spec.settings.get("engine.parallelism.pipeline", 1)
    return max(spec.resources.num_accelerators, tensor * pipeline)


def _with_sizes(env: list[Any], spec: ServiceSpec, *, is_engine: bool) -> list[Any]:
    """The variables with the values of the variant's resources.

    is_engine: also add and remove those of `device_variables`, as the variant's device needs them.
    """
    runtime = runtime_of(spec.settings)
    values = {each["name"]: each for each in runtime.environment(spec)}
    found = [values.get(each.get("name"), each) for each in env]
    if not is_engine:
        return found
    names = {each.get("name") for each in env}
    absent = [name for name in runtime.device_variables if name not in values]
    added = [name for name in runtime.device_variables if name in values and name not in names]
    kept = [each for each in found if each.get("name") not in absent]
    return [*kept, *(values[name] for name in added)]


def _with_device(args: list[Any], spec: ServiceSpec) -> list[Any]:
    """The arguments with the flags of the variant's devices, in place of those of others."""
    flags = runtime_of(spec.settings).device_flags(spec)
    if not flags:
        return args  # the runtime has no such flags: any that are there are the user's own
    # Ranks that the spec sets itself are the same on all variants.
    sets_ranks = "engine.parallelism.tensor" in spec.settings
    names = (DEVICE_FLAG,) if sets_ranks else (DEVICE_FLAG, RANKS_FLAG)
    at = next((i for i, arg in enumerate(args) if str(arg).startswith(names)), None)
    if at is None:
        return args  # the user's own
    kept = [arg for arg in args if not str(arg).startswith(names)]
    return [*kept[:at], *flags, *kept[at:]]
