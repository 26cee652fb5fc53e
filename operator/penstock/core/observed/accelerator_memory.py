"""Memory of the accelerators that a pod may get: from resource names, labels of nodes, or ResourceSlices."""

import re
from collections.abc import Iterable
from typing import Literal

from penstock.core.formats.quantity import whole_quantity
from penstock.core.observed.label_selector import selects
from penstock.core.spec.resources import ACCELERATOR_DOMAIN, ResourceSpec
from penstock.core.spec.service import Object

# Label by NVIDIA's GPU feature discovery: memory of one GPU of the node, or of one MIG slice, in MiB.
MEMORY_LABEL = "nvidia.com/gpu.memory"
# Resource of a MIG slice, such as nvidia.com/mig-3g.40gb. Its memory is rounded up in the name.
_MIG = re.compile(re.escape(ACCELERATOR_DOMAIN) + r"mig-(?:\d+c\.)?\d+g\.(\d+)gb")
# Driver of NVIDIA's GPUs in ResourceSlices, and the capacity that is a device's memory.
GPU_DRIVER, MEMORY_CAPACITY = "gpu.nvidia.com", "memory"
# Taints of this domain come and go with the node's state.
_NODE_STATE = "node.kubernetes.io/"

# The objects that say how much memory accelerators have.
Source = Literal["nodes", "resourceslices"]


def source_of(resources: ResourceSpec) -> Source | None:
    """Kind of the objects that say how much memory the accelerators have.

    None: no object does, or the name of the resource says it.
    """
    if resources.accelerator is None:
        return "resourceslices" if resources.claims else None
    is_nvidia = resources.accelerator[0].startswith(ACCELERATOR_DOMAIN)
    return "nodes" if is_nvidia and mig_bytes(resources) is None else None


def mig_bytes(resources: ResourceSpec) -> int | None:
    """Memory of one MIG slice, by the name of the resource; None for other accelerators."""
    accelerator = resources.accelerator
    found = None if accelerator is None else _MIG.match(accelerator[0])
    return None if found is None else int(found[1]) * 2**30


def claimed_bytes(slices: Iterable[Object]) -> int | None:
    """Memory of the largest GPU of ResourceSlices; None: unknown.

    The expressions of a claim, which select devices, are not evaluated: the claim may get a smaller GPU.
    """
    devices = (
        device
        for each in slices
        if each["spec"]["driver"] == GPU_DRIVER
        for device in each["spec"].get("devices") or []
    )
    sizes = (device.get("capacity", {}).get(MEMORY_CAPACITY, {}).get("value") for device in devices)
    return max((whole_quantity(size) for size in sizes if size), default=None)


def smallest_bytes(pod: Object, resources: ResourceSpec, nodes: Iterable[Object]) -> int | None:
    """Memory of the smallest accelerator on the nodes that may run the pod; None: unknown.

    pod: a pod spec. resources: of the engine. Nodes whose label is missing or no number are left out.
    """
    if resources.accelerator is None:
        return None
    name, count = resources.accelerator
    labels = (
        node["metadata"].get("labels", {}).get(MEMORY_LABEL, "")
        for node in nodes
        if _has_accelerators(node, name, count) and _may_run(pod, node, name)
    )
    return min((int(mib) * 2**20 for mib in labels if mib.isdecimal() and int(mib)), default=None)


def _has_accelerators(node: Object, resource: str, count: int) -> bool:
    allocatable = node.get("status", {}).get("allocatable", {})
    return whole_quantity(allocatable.get(resource, 0)) >= count


def _may_run(pod: Object, node: Object, resource: str) -> bool:
    """Whether the pod may run on the node; False for a malformed pod, which the API server refuses."""
    try:
        return _is_admitted(pod, node, resource)
    except (AttributeError, IndexError, KeyError, TypeError):
        return False


def _is_admitted(pod: Object, node: Object, resource: str) -> bool:
    """Whether the pod's node selection and tolerations admit the node."""
    labels = node["metadata"].get("labels", {})
    if not selects({"matchLabels": pod.get("nodeSelector")}, labels):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        name = {"metadata.name": node["metadata"]["name"]}
        if not any(_is_selected(term, labels, name) for term in required["nodeSelectorTerms"]):
            return False
    tolerations = pod.get("tolerations") or []
    return all(
        any(_tolerates(each, taint) for each in tolerations)
        # An admission plugin of many clusters adds the toleration of a taint named like the resource.
        or taint["key"] == resource
        or taint["key"].startswith(_NODE_STATE)
        or taint["effect"] == "PreferNoSchedule"
        for taint in node.get("spec", {}).get("taints") or []
    )


def _is_selected(term: Object, labels: dict[str, str], fields: dict[str, str]) -> bool:
    """Whether a node selector term matches the node. An empty term matches none."""
    by_label, by_field = term.get("matchExpressions"), term.get("matchFields")
    return (
        bool(by_label or by_field)
        and selects({"matchExpressions": by_label}, labels)
        and selects({"matchExpressions": by_field}, fields)
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    key, effect = toleration.get("key"), toleration.get("effect")
    if key not in (None, "", taint["key"]) or effect not in (None, "", taint["effect"]):
        return False
    has_value = bool(toleration.get("value", "") == taint.get("value", ""))
    return has_value or toleration.get("operator", "Equal") == "Exists"
