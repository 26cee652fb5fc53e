"""The kubelet of a node is killed and starts again: no container restarts, and no request fails."""

import asyncio

from benchmarks.real_node.lab import Lab
from benchmarks.real_node.system_pods import NODE, even_out
from benchmarks.real_node.two_engines import (
    READY_S,
    check_outcomes,
    engines,
    name_of,
    requests,
    restarts,
    start,
    watched,
)

from penstock.clients.machine.clock import monotonic
from penstock.demo.stage import poll_until
from penstock.local import processes
from penstock.local.kubelet.supervisor import program_component

NAME = "kubelet-restart"
KUBELET = program_component(NODE, "kubelet")
SETTLE_S = 30.0


async def run(lab: Lab) -> dict[str, object]:
    async with lab.namespace("kubelet") as namespace:
        even_out(lab)
        await start(lab, NAME, namespace)
        before, names = restarts(lab, watched(namespace)), _names(lab, namespace)
        (kubelet,) = processes.find(lab.cluster.cluster_id, KUBELET)
        async with requests(lab, NAME) as load:
            killed_s, renewed_at = monotonic(), _renewed_at(lab)
            kubelet.kill()

            async def is_back() -> bool:
                return bool(processes.find(lab.cluster.cluster_id, KUBELET)) and (
                    _renewed_at(lab) != renewed_at
                )

            await poll_until(is_back, within_s=READY_S, what="the kubelet renews its lease")
            back_s = monotonic() - killed_s
            # A restarted kubelet reads the containers that it finds, and updates the pods' states.
            await asyncio.sleep(SETTLE_S)
            await lab.stage.wait_for_engines(NAME, 2, within_s=READY_S, namespace=namespace)
        after = restarts(lab, watched(namespace))
        assert after == before, f"restarts before and after: {before}, {after}"
        assert _names(lab, namespace) == names, "pods were replaced"
        return check_outcomes(load) | {"kubelet_back_s": round(back_s, 1)}


def _names(lab: Lab, namespace: str) -> list[str]:
    return [name_of(pod) for pod in engines(lab, NAME, namespace)]


def _renewed_at(lab: Lab) -> str:
    """Read when the kubelet last renewed the Lease of its node."""
    path = "jsonpath={.spec.renewTime}"
    return lab.kubectl("get", "lease", "-n", "kube-node-lease", NODE, "-o", path)
