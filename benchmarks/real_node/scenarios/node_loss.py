"""A node with an engine, a gateway and the leading operator dies at once, and joins again later."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
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
    pods,
    requests,
    restarts,
    start,
    watched,
)

from penstock.chart.names import GATEWAY
from penstock.clients.machine.clock import monotonic
from penstock.core.formats.addresses import host_port
from penstock.core.formats.conditions import find_condition
from penstock.core.observed.pods import ObservedPod, container_port
from penstock.demo.stage import poll_until
from penstock.local import cluster as clusters
from penstock.local import processes

NAME = "node-loss"
PROBE_PAUSE_S, PROBE_TIMEOUT_S = 0.5, 5.0
MEASURED_S = 20.0  # of requests with the failed engine left out


async def run(lab: Lab) -> dict[str, object]:
    async with lab.namespace("node") as namespace:
        await place_leader(lab)
        await start(lab, NAME, namespace)
        found = by_node(engines(lab, NAME, namespace))
        assert found[NODE] == 1, f"engines by node: {found}"
        try:
            figures = await _lose_node(lab, namespace)
        finally:
            await asyncio.to_thread(clusters.up, lab.cluster.name, say=print)
        return figures | await _rejoin(lab, namespace)


async def _lose_node(lab: Lab, namespace: str) -> dict[str, object]:
    """Kill the node under load, and wait until everything is replaced. Returns figures in seconds."""
    before, old_leader = restarts(lab, watched(namespace)), await leader(lab)
    probe = Probe(lab.cluster.gateway_url)
    async with requests(lab, NAME, url=_surviving_gateway(lab)) as load, probe.running():
        lost_s = monotonic()
        for process in processes.find(lab.cluster.cluster_id, NODE):
            process.kill()
        figures = await _wait_for_successors(lab, namespace, old_leader, lost_s)
        await asyncio.sleep(MEASURED_S)
    status = (await lab.stage.view(NAME, namespace)).status
    assert (status["replicas"], status["readyReplicas"]) == (2, 2), status
    after = restarts(lab, watched(namespace))
    harmed = {uid: number for uid, number in after.items() if number != before.get(uid, 0)}
    assert not harmed, f"containers of the other node restarted: {harmed}"
    return figures | check_outcomes(load, may_cut=True) | probe.figures(lost_s)


async def _wait_for_successors(
    lab: Lab, namespace: str, old_leader: str, lost_s: float
) -> dict[str, object]:
    """Wait for another leader, the node's condition and another engine. Raises TimeoutError."""

    async def leads_another() -> bool:
        return await leader(lab) not in ("", old_leader)

    async def is_unready() -> bool:
        return not _is_ready(lab)

    figures: dict[str, object] = {}

    def note(what: str) -> None:
        figures[f"{what}_s"] = round(monotonic() - lost_s, 1)

    await poll_until(leads_another, within_s=READY_S, what="another operator leads")
    note("another_operator_leads")
    await poll_until(is_unready, within_s=READY_S, what=f"{NODE} is not ready")
    note("node_is_not_ready")
    for number in (1, 2):  # the lost one counts as ready until the node is known to be lost
        await lab.stage.wait_for_engines(NAME, number, within_s=READY_S, namespace=namespace)
    note("engine_is_replaced")
    return figures


def _surviving_gateway(lab: Lab) -> str:
    """URL of the gateway's pod on the other node."""
    (pod,) = (each for each in component_pods(lab, GATEWAY) if node_of(each) != NODE)
    port = container_port(pod, "http")
    assert port is not None
    return f"http://{host_port(pod['status']['podIP'], port)}"


def _is_ready(lab: Lab) -> bool:
    node = json.loads(lab.kubectl("get", "node", NODE, "-o", "json"))
    return bool(find_condition(node["status"], "Ready", "True"))


class Probe:
    """New connections to the gateway's Service, one after the other, and which of them failed."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/models"
        self.num_sent = 0
        self.failed_s: list[float] = []  # when, on the monotonic clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send requests while the block runs."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                started_s = monotonic()
                self.num_sent += 1
                try:
                    async with session.get(self._url) as answer:
                        answer.raise_for_status()
                except (aiohttp.ClientError, TimeoutError):
                    self.failed_s.append(started_s)
                await asyncio.sleep(PROBE_PAUSE_S)

    def figures(self, lost_s: float) -> dict[str, object]:
        """Figures since the node was lost."""
        last_s = max(self.failed_s, default=lost_s)
        return {
            "connections": self.num_sent,
            "failed_connections": len(self.failed_s),
            "last_failed_connection_s": round(last_s - lost_s, 1),
        }


async def _rejoin(lab: Lab, namespace: str) -> dict[str, object]:
    """Wait until the node is ready and its former pods are gone."""
    started_s = monotonic()

    async def is_ready() -> bool:
        return _is_ready(lab)

    async def are_settled() -> bool:
        found = [pod for each in watched(namespace) for pod in pods(lab, each)]
        return all(
            ObservedPod.of(pod).is_ready and "deletionTimestamp" not in pod["metadata"]
            for pod in found
        )

    await poll_until(is_ready, within_s=READY_S, what=f"{NODE} joins")
    joined_s = monotonic() - started_s
    await poll_until(are_settled, within_s=READY_S, what="the pods of before are gone")
    even_out(lab)
    return {"node_joins_s": round(joined_s, 1)}
