"""A batch of a tenant at the chart's batch server, which is killed in the middle of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from e2e.nodes import temporary_cluster
from tests.support.cluster.batch_server import (
    ENDED,
    BatchClient,
    batch_values,
    completion_lines,
    prepare_batch_server,
)
from tests.support.cluster.service_proxy import ServiceProxy
from tests.support.cluster.tenants import create_key, tenant_manifest
from tests.support.engine.forked_command import forked_engine_command

from penstock.chart.names import BATCH, NAMESPACE, selector
from penstock.clients.kubernetes.client import Object, connect
from penstock.clients.kubernetes.resources import PODS
from penstock.core.observed.pods import ObservedPod
from penstock.demo.stage import Stage, poll_until
from penstock.local import faults
from penstock.local.install import install
from penstock.local.node.container import COMMANDS

ROOT = Path(__file__).parents[2]
NAME, TENANT = "batched", "reports"
NUM_LINES, MAX_TOKENS = 40, 48
DONE_AT_KILL = 8  # lines: by then the journal has the first ones, and most lines are left

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.node_agent("a proxy stands in for the Services of gateway and batch server"),
]


@dataclass(frozen=True, slots=True)
class Front:
    """A cluster with a batch server. store: the folder of its claim."""

    stage: Stage
    store: Path


@pytest.fixture
async def front(models: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    with forked_engine_command() as commands, monkeypatch.context() as patch:
        patch.setenv(COMMANDS, str(commands))
        with temporary_cluster("batch", "agent") as cluster:
            async with (
                await connect(cluster.kubeconfig) as kube,
                ServiceProxy(kube, NAMESPACE, BATCH) as proxy,
            ):
                stage = Stage(cluster, kube)
                stage.mount_models(models)
                store = prepare_batch_server(stage)
                values = batch_values(proxy.url, cluster.gateway_url)
                await install(cluster, say=lambda _: None, values=values)
                yield Front(stage, store)
                await stage.close()


async def test_each_line_is_answered_once_by_two_batch_servers(front: Front) -> None:
    stage = front.stage
    service: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    service["metadata"] = {"name": NAME}
    stage.apply(service, tenant_manifest(TENANT))
    key = await create_key(stage, TENANT)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        base_url=stage.cluster.gateway_url, headers=headers, timeout=60
    ) as http:
        await stage.wait_until_ready(NAME, within_s=120)
        await poll_until(lambda: is_served(http), within_s=60, what="a gateway that takes files")
        client = BatchClient(http)
        lines = completion_lines(NAME, NUM_LINES, max_tokens=MAX_TOKENS, ignore_eos=True)
        batch = await client.create(lines)
        done = await kill_in_the_middle(stage, client, batch["id"])
        batch = await until_ended(client, batch["id"])
        counts = {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
        assert (batch["status"], batch["request_counts"]) == ("completed", counts)
        results = await client.results(batch)
    assert sorted(each["custom_id"] for each in results) == sorted(
        each["custom_id"] for each in lines
    )
    for each in results:
        assert each["response"]["status_code"] == 200
        assert each["response"]["body"]["usage"]["completion_tokens"] == MAX_TOKENS
    assert [*front.store.rglob("*.json")], "the volume has no records"
    print(f"{NUM_LINES} lines, of which {done} were done before the kill")


async def is_served(http: httpx.AsyncClient) -> bool:
    """Whether the gateway takes the key, and reaches the batch server."""
    return (await http.get("/v1/files")).status_code == 200


async def kill_in_the_middle(stage: Stage, client: BatchClient, batch_id: str) -> int:
    """Kill the batch server, and delete its pod, once some lines are done. Returns their number."""
    async with asyncio.timeout(60):
        while True:
            batch = await client.get(batch_id)
            if batch is not None and batch["request_counts"]["completed"] >= DONE_AT_KILL:
                break
            await asyncio.sleep(0.05)
    labels = ",".join(f"{key}={value}" for key, value in selector(BATCH).items())
    pods, _ = await stage.kube.list(PODS, NAMESPACE, labelSelector=labels)
    (old,) = (ObservedPod.of(pod).name for pod in pods)
    faults.kill(stage.cluster, old, "batch", namespace=NAMESPACE)
    stage.kubectl("delete", "pod", old, "-n", NAMESPACE, "--grace-period=0", "--force")
    assert batch["status"] == "in_progress", batch
    done: int = batch["request_counts"]["completed"]
    assert done < NUM_LINES
    return done


async def until_ended(client: BatchClient, batch_id: str) -> Object:
    async with asyncio.timeout(90):
        while True:
            batch = await client.get(batch_id)
            if batch is not None and batch["status"] in ENDED:
                return batch
            await asyncio.sleep(0.2)
