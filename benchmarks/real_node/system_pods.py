"""Finds and moves the pods of Penstock's own Deployments, and the operator that leads."""

from collections import Counter
from collections.abc import Iterable

from benchmarks.real_node.lab import NUM_NODES, Lab
from benchmarks.real_node.two_engines import name_of, pods

from penstock.chart.names import GATEWAY, LEASE_NAME, NAMESPACE, OPERATOR, selector
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.resources import LEASES
from penstock.local.kubelet.configuration import node_name

# Connections of this machine to Services go by the first node, so the other one is lost or drained.
NODE = node_name(1)
MAX_MOVES = 6  # deletions of pods until they are where a scenario needs them


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def by_node(found: Iterable[Object]) -> Counter[str]:
    """Count pods that do not terminate by their nodes."""
    return Counter(node_of(pod) for pod in found if "deletionTimestamp" not in pod["metadata"])


def component_pods(lab: Lab, component: str) -> list[Object]:
    """Read the pods of OPERATOR or GATEWAY."""
    (label,) = selector(component).items()
    return pods(lab, NAMESPACE, "=".join(label))


async def leader(lab: Lab) -> str:
    """Read the name of the operator's pod that leads; empty while none does."""
    lease = await lab.kube.get(LEASES, NAMESPACE, LEASE_NAME)
    holder = str(lease["spec"].get("holderIdentity") or "")
    found = map(name_of, component_pods(lab, OPERATOR))
    return next((name for name in found if holder.startswith(name)), "")


async def place_leader(lab: Lab) -> str:
    """Have each component on both nodes, and the leader on NODE. Returns its name. Raises AssertionError."""
    for _ in range(MAX_MOVES):
        even_out(lab)
        name = await leader(lab)
        nodes = {name_of(pod): node_of(pod) for pod in component_pods(lab, OPERATOR)}
        if nodes.get(name) == NODE:
            return name
        if name:
            _delete(lab, OPERATOR, name)
    raise AssertionError(f"no leader on {NODE}: operators are on {nodes}, and {name} leads")


def even_out(lab: Lab) -> None:
    """Delete pods of components until each runs on both nodes. Raises AssertionError."""
    for component in (OPERATOR, GATEWAY):
        for _ in range(MAX_MOVES):
            found = component_pods(lab, component)
            counts = by_node(found)
            if len(counts) == NUM_NODES:
                break
            crowded = max(counts, key=counts.__getitem__)
            _delete(lab, component, next(name_of(p) for p in found if node_of(p) == crowded))
        else:
            raise AssertionError(f"pods of {component} by node: {counts}")


def _delete(lab: Lab, component: str, name: str) -> None:
    """Delete a pod, and wait until it is gone and its successor is ready."""
    lab.kubectl("delete", "pod", "-n", NAMESPACE, name, timeout_s=150)
    lab.kubectl(
        "rollout", "status", f"deployment/{component}", "-n", NAMESPACE, "--timeout=120s",
        timeout_s=150,
    )  # fmt: skip
