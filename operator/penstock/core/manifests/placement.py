"""Pod placement: sets the fields of a pod that depend on its variant's nodes."""

from copy import deepcopy

from penstock.core.formats.quantity import parse_quantity
from penstock.core.formats.strategic_merge import is_keyed, merge
from penstock.core.spec.service import ENGINE_CONTAINER, Object, ServiceSpec

_DEVICE = "--device="


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
                container["args"] = [
                    device_flag(spec) if str(arg).startswith(_DEVICE) else arg for arg in args
                ]
            if resources is not None:
                container["resources"] = resources
    merged: Object = merge(placed, overrides)
    return merged


def resources_of(spec: ServiceSpec) -> Object:
    """Resource requests and limits of an engine's container."""
    asked = {"cpu": spec.cpu, "memory": spec.memory}
    if spec.accelerator:
        asked[spec.accelerator[0]] = str(spec.accelerator[1])
    return {"requests": asked, "limits": asked}


def size_variables(spec: ServiceSpec) -> list[Object]:
    """Environment variables with the pod's memory and CPU limits, for the engine's sizing."""
    memory_bytes = int(parse_quantity(spec.memory))
    cpus = max(1, int(parse_quantity(spec.cpu)))
    return [
        {"name": "PENSTOCK_MEMORY_LIMIT_BYTES", "value": str(memory_bytes)},
        {"name": "PENSTOCK_CPU_LIMIT", "value": str(cpus)},
    ]


def device_flag(spec: ServiceSpec) -> str:
    return f"{_DEVICE}{'cuda' if spec.accelerator else 'cpu'}"
