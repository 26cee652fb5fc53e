"""A node with an engine, a gateway and the leading operator is drained under load, and no request fails."""

import asyncio

from benchmarks.real_node.lab import Lab
from benchmarks.real_node.system_pods import (
    NODE,
    by_node,
    component_pods,
    even_out,
    leader,
    node_of,
    place_leader,
)
from benchmarks.real_node.two_engines import (
    READY_S,
    check_outcomes,
    engines,
    name_of,
    pods,
    requests,
    start,
    watched,
)

from penstock.chart.names import GATEWAY, OPERATOR
from penstock.clients.kubernetes.client import Object
from penstock.clients.machine.clock import monotonic
from penstock.core.observed.pods import ObservedPod

NAME = "drained"
DRAIN_S = 280
WATCH_PAUSE_S = 0.5


async def run(lab: Lab) -> dict[str, object]:
    async with lab.namespace("drain") as namespace:
        await place_leader(lab)
        await start(lab, NAME, namespace)
        found = by_node(engines(lab, NAME, namespace))
        assert found[NODE] == 1, f"engines by node: {found}"
        fewest = {NAME: 2, GATEWAY: 2, OPERATOR: 2}
        try:
            async with requests(lab, NAME) as load:
                watching = asyncio.create_task(_watch(lab, namespace, fewest))
                started_s = monotonic()
                await asyncio.to_thread(_drain, lab)
                drained_s = monotonic() - started_s
                left = [
                    name_of(pod)
                    for each in watched(namespace)
                    for pod in pods(lab, each)
                    if node_of(pod) == NODE
                ]
                await lab.stage.wait_for_engines(NAME, 2, within_s=READY_S, namespace=namespace)
                watching.cancel()
        finally:
            lab.kubectl("uncordon", NODE)
        assert not left, f"pods that the drain left on {NODE}: {left}"
        assert min(fewest.values()) > 0, f"fewest ready pods: {fewest}"
        assert await leader(lab), "no operator leads"
        even_out(lab)
        return check_outcomes(load) | {"drained_s": round(drained_s, 1), "fewest": fewest}


def _drain(lab: Lab) -> None:
    lab.kubectl(
        "drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data",
        f"--timeout={DRAIN_S}s", timeout_s=DRAIN_S + 20,
    )  # fmt: skip


async def _watch(lab: Lab, namespace: str, fewest: dict[str, int]) -> None:
    """Keep the smallest numbers of ready pods that were seen."""
    while True:
        for name in fewest:
            found = await asyncio.to_thread(_pods_of, lab, namespace, name)
            ready = sum(ObservedPod.of(pod).is_ready for pod in found)
            fewest[name] = min(fewest[name], ready)
        await asyncio.sleep(WATCH_PAUSE_S)


def _pods_of(lab: Lab, namespace: str, name: str) -> list[Object]:
    is_component = name in (GATEWAY, OPERATOR)
    return component_pods(lab, name) if is_component else engines(lab, name, namespace)
