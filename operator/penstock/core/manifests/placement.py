"""Placement of a pod: the fields that choose its nodes, and how they are replaced."""

from copy import deepcopy

from penstock.core.quantity import parse_quantity
from penstock.core.service import ENGINE_CONTAINER, Object, ServiceSpec
from penstock.core.strategic_merge import is_keyed, merge

_DEVICE = "--device="


def place(
    pod: Object, spec: ServiceSpec, overrides: Object, resources: Object | None = None
) -> Object:
    """A pod's spec on the nodes of a variant, whatever variant it was made for; all else stays as it is.

    spec: as placed on the variant. overrides: what the user's template states of the pod's spec.
    resources: of the engine's container; None leaves them.
    """
    placed = deepcopy(pod)
    for field in ("nodeSelector", "tolerations"):
        placed.pop(field, None)
    for container in placed["containers"]:
        if container["name"] == ENGINE_CONTAINER:
            values = {each["name"]: each for each in envs(spec)}
            env, args = container.get("env", []), container.get("args", [])
            if is_keyed(env, "name"):
                container["env"] = [values.get(each.get("name"), each) for each in env]
            if isinstance(args, list):
                container["args"] = [
                    device_flag(spec) if str(arg).startswith(_DEVICE) else arg for arg in args
                ]
            if resources is not None:
                container["resources"] = resources
    merged: Object = merge(placed, overrides)
    return merged


def amounts(spec: ServiceSpec) -> Object:
    """Resource requests and limits of an engine's container."""
    asked = {"cpu": spec.cpu, "memory": spec.memory}
    if spec.accelerator:
        asked[spec.accelerator[0]] = str(spec.accelerator[1])
    return {"requests": asked, "limits": asked}


def envs(spec: ServiceSpec) -> list[Object]:
    """The environment that tells a container how large its pod is."""
    memory_bytes = int(parse_quantity(spec.memory))
    cpus = max(1, int(parse_quantity(spec.cpu)))
    return [
        {"name": "PENSTOCK_MEMORY_LIMIT_BYTES", "value": str(memory_bytes)},
        {"name": "PENSTOCK_CPU_LIMIT", "value": str(cpus)},
    ]


def device_flag(spec: ServiceSpec) -> str:
    return f"{_DEVICE}{'cuda' if spec.accelerator else 'cpu'}"
