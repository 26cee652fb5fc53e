"""Streams flow while a service scales 1 -> 3 -> 1 over two nodes. No stream may be cut or refused."""

import asyncio

import yaml
from benchmarks.real_node.lab import ENGINE_RESOURCES, ROOT, Lab
from tests.support.background import background
from tests.support.cluster.scale_under_load import scale_under_load

from penstock.clients.kubernetes.resources import PODS
from penstock.clients.machine.clock import monotonic
from penstock.core.spec.service import SERVICE_LABEL, Object
from penstock.demo.load import End, corpus
from penstock.demo.stage import Stage

NAME = "scaled"
REQUESTS = 200
SEED = 1


async def run(lab: Lab) -> dict[str, object]:
    async with lab.stage_in_namespace(NAME) as stage:
        stage.apply(service())
        await stage.wait_for_engines(NAME, 1, within_s=240)
        nodes: set[str] = set()
        started_s = monotonic()
        async with background(watch_nodes(stage, nodes)):
            outcomes = await scale_under_load(
                stage, NAME, corpus(ROOT), requests=REQUESTS, kill=False, seed=SEED
            )
        assert outcomes.first_bad is None, outcomes.first_bad
        assert outcomes.ends[End.CUT] == 0, outcomes
        assert (outcomes.peak_ready, outcomes.final_ready) == (3, 1), outcomes
        assert len(nodes) == lab.cluster.num_nodes, nodes
        return {
            "requests": sum(outcomes.ends.values()),
            "failed": sum(outcomes.ends.values()) - outcomes.ends[End.DONE],
            "engines": f"1 -> {outcomes.peak_ready} -> {outcomes.final_ready}",
            "nodes": len(nodes),
            "up_and_down_s": round(monotonic() - started_s),
        }


def service() -> Object:
    """Build the demo's service under another name."""
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"]["name"] = NAME
    made["spec"]["resources"] = ENGINE_RESOURCES
    return made


async def watch_nodes(stage: Stage, nodes: set[str]) -> None:
    """Collect the nodes of the service's engines, until it is cancelled."""
    while True:
        pods, _ = await stage.kube.list(
            PODS, stage.namespace, labelSelector=f"{SERVICE_LABEL}={NAME}"
        )
        nodes |= {pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]}
        await asyncio.sleep(2)
