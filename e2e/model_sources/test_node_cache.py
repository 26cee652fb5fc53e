"""A cache of models on a node: the chart's DaemonSet fetches a model once for all services of the node."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from e2e.nodes import temporary_cluster
from tests.support.engine.forked_command import forked_engine_command
from tests.support.sources.hub_server import HubServer

from penstock.chart.names import NAMESPACE, NODE_CACHE, selector
from penstock.clients.kubernetes.client import Object, connect
from penstock.clients.kubernetes.resources import PODS
from penstock.demo.stage import Stage, poll_until
from penstock.local.cluster import Cluster
from penstock.local.install import install
from penstock.local.node.container import COMMANDS

ROOT = Path(__file__).parents[2]
FIRST, SECOND, OTHER = "from-cache", "from-cache-too", "from-elsewhere"
SECRET, TOKEN, TEAM = "hub", "hf_e2e", "team"
WEIGHTS = "model.safetensors"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.node_agent("the hub listens on the loopback address of this machine"),
]


@pytest.fixture(scope="module")
def hub(models: Path) -> Iterator[HubServer]:
    """A hub with the tiny model in two organizations. Only the token may read it."""
    folder = models / "penstock-tiny"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with HubServer() as server:
        server.add("org/tiny", files, token=TOKEN)
        server.add("elsewhere/tiny", files, token=TOKEN)
        yield server


@pytest.fixture(scope="module")
def cluster(hub: HubServer) -> Iterator[Cluster]:
    """A cluster of its own, with a cache on its node that may fetch the models of one organization."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(COMMANDS, str(stack.enter_context(forked_engine_command())))
        made = stack.enter_context(temporary_cluster("node-cache", "agent"))
        values = {
            "nodeCache": {
                "enabled": True,
                "path": str(models_of(made)),
                "allowedSources": ["hf://org/"],
                "credentialsSecret": SECRET,
            },
            "operator": {"sourceVariables": [f"HF_ENDPOINT={hub.url}"]},
        }
        asyncio.run(install(made, say=lambda _: None, values=values))
        yield made


def models_of(cluster: Cluster) -> Path:
    """The cache's folder. The node agent takes one below /tmp in the operator's arguments for its pod's."""
    return cluster.folder / "models"


@pytest.fixture
async def nodes(cluster: Cluster, models: Path) -> AsyncIterator[Stage]:
    """Access to the cluster, whose namespaces have the Secret with the token."""
    async with await connect(cluster.kubeconfig) as kube:
        made = Stage(cluster, kube)
        made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        for namespace in (NAMESPACE, TEAM, "default"):
            made.apply(secret(), namespace=namespace)
        await poll_until(lambda: is_cache_ready(made), within_s=60, what="the cache is ready")
        try:
            yield made
        finally:
            made.kubectl("delete", "psvc", "--all", "--all-namespaces")
            await made.close()


def secret() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "data": {"HF_TOKEN": base64.b64encode(TOKEN.encode()).decode()},
    }


async def cache_pods(stage: Stage) -> list[Object]:
    labels = ",".join(f"{name}={value}" for name, value in selector(NODE_CACHE).items())
    found, _ = await stage.kube.list(PODS, NAMESPACE, labelSelector=labels)
    return found


async def is_cache_ready(stage: Stage, but: str = "") -> bool:
    """Whether a pod of the cache is ready. but: UID of one that does not count."""
    return any(
        each["metadata"]["uid"] != but and condition["status"] == "True"
        for each in await cache_pods(stage)
        for condition in each.get("status", {}).get("conditions", [])
        if condition["type"] == "Ready"
    )


def service(name: str, uri: str, replicas: int) -> Object:
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"] = {"name": name}
    made["spec"]["model"] = {
        "uri": uri, "secretRef": {"name": SECRET}, "cache": {"type": "Node"},
    }  # fmt: skip
    made["spec"]["engine"].pop("lora")
    made["spec"]["scaling"] = {"minReplicas": replicas, "maxReplicas": 3}
    return made


def answer(stage: Stage, model: str) -> str:
    """The model's answer to a request at the gateway."""
    body = {"model": model, "prompt": "hello", "max_tokens": 4, "temperature": 0}
    response = httpx.post(f"{stage.cluster.gateway_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


async def test_services_of_a_node_share_one_download(nodes: Stage, hub: HubServer) -> None:
    """The services are in two namespaces. A pod that starts after a restart of the cache finds the model."""
    before_bytes = hub.cdn.sent_bytes
    nodes.apply(service(FIRST, "hf://org/tiny", replicas=2))
    nodes.apply(service(SECOND, "hf://org/tiny", replicas=1), namespace=TEAM)
    await nodes.wait_for_engines(FIRST, 2, within_s=180)
    await nodes.wait_until_ready(SECOND, within_s=120, namespace=TEAM)
    assert answer(nodes, FIRST) == answer(nodes, f"{TEAM}/{SECOND}")
    repository = hub.repositories["org/tiny"]
    size = len(repository.commits[repository.revisions["main"]][WEIGHTS])
    # Each preflight reads the header, and the cache the weights.
    sent = hub.cdn.sent_bytes
    assert size <= sent - before_bytes < 1.5 * size
    blobs = (models_of(nodes.cluster) / "blobs").rglob("*")
    assert any(path.stat().st_size == size for path in blobs)

    (before,) = await cache_pods(nodes)
    nodes.kubectl("delete", "pod", "-n", NAMESPACE, before["metadata"]["name"])
    await poll_until(
        lambda: is_cache_ready(nodes, before["metadata"]["uid"]),
        within_s=60,
        what="a new pod of the cache",
    )
    nodes.patch(FIRST, {"scaling": {"minReplicas": 3}})
    await nodes.wait_for_engines(FIRST, 3, within_s=120)
    assert hub.cdn.sent_bytes == sent
    assert answer(nodes, FIRST)


async def test_a_source_that_the_cache_refuses_is_fetched_by_the_pod(
    nodes: Stage, hub: HubServer
) -> None:
    repository = hub.repositories["elsewhere/tiny"]
    size = len(repository.commits[repository.revisions["main"]][WEIGHTS])
    sent = hub.cdn.sent_bytes
    nodes.apply(service(OTHER, "hf://elsewhere/tiny", replicas=1))
    await nodes.wait_for_engines(OTHER, 1, within_s=180)
    assert answer(nodes, OTHER)
    assert hub.cdn.sent_bytes - sent >= size
    (pod,) = (await nodes.view(OTHER)).pods
    log = nodes.kubectl("logs", pod.name, "-c", "fetch-model")
    print(log)
    assert "is not used" in log
