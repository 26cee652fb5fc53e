"""Each file of examples/ is applied as its comments and the pages say, becomes Ready and answers.

Servers of this machine have the models: the tiny one, with the names of the models in the examples.
"""

import asyncio
import json
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from e2e.examples.example_file import ROOT, ExampleFile
from e2e.examples.local_sources import AZURE, Sources, local_sources
from e2e.nodes import values

from penstock.chart.names import NAMESPACE, NODE_CACHE, OPERATOR
from penstock.chart.values.values import merged
from penstock.clients.kubernetes.client import Object, connect
from penstock.demo.kubectl import Kubectl
from penstock.demo.model import MODEL_NAME, ensure_adapters
from penstock.demo.stage import Stage
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster
from penstock.local.install import install
from penstock.local.models_claim import folder_claim
from penstock_engine.make_model.adapters import make_adapters

TEAM = "examples"  # the namespace; examples of several pages have the same names
CHAT = "SmolLM2-135M-Instruct"
WAIT_S = 180
# Files that this module does not apply, with the reason.
NOT_RUN = {
    "argo-cd-health.yaml": "configures Argo CD; tests/controller/services runs its health check",
    "external-model.yaml": "needs a provider; tests/gateway has some, tests/api checks the kind",
    "kustomize/kustomization.yaml": "installs Penstock; tests/chart/rendering builds it",
    "prometheus.yaml": "configures Prometheus; tests/prometheus runs one with it",
    "tenant.yaml": "closes the gateway to callers without a key; tests/api/tenant checks it",
    "tensor-parallel.yaml": "needs four GPUs and a PriorityClass",
    "vllm.yaml": "needs a GPU and the image of vLLM",
}
# Files that are applied one after the other, as later ones belong to the service of the first.
TOGETHER = (
    ("lora-service.yaml", "lora-adapter.yaml", "dedicated-adapter.yaml"),
    ("tiny-model.yaml", "tiny-adapters.yaml"),
)
# Files that are applied with the Secret that their comments offer.
WITH_SECRET = ("model-sources/https.yaml",)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.node_agent("the sources listen on the loopback address of this machine"),
]


def cases() -> list[tuple[str, ...]]:
    """Files that are applied, in the groups that belong together."""
    names = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.yaml"))
    grouped = {name for group in TOGETHER for name in group}
    alone = [(name,) for name in names if name not in grouped and name not in NOT_RUN]
    return [*TOGETHER, *alone]


@pytest.fixture(scope="module")
def chat(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model under the name of the chat model, for as many tokens as the examples have."""
    folder = tmp_path_factory.mktemp("chat") / CHAT
    shutil.copytree(models / MODEL_NAME, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    return folder


@pytest.fixture(scope="module")
def adapters(chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the claim `adapters`."""
    folder = tmp_path_factory.mktemp("adapters")
    made = make_adapters(chat, tmp_path_factory.mktemp("made"), 3)
    for source, name in zip(made, ("sql/v3", "legal", "support"), strict=True):
        shutil.copytree(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def sources(
    chat: Path, adapters: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sources]:
    with local_sources(chat, adapters / "sql" / "v3", tmp_path_factory.mktemp("sources")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(penstock_cluster: Cluster, sources: Sources) -> Iterator[Cluster]:
    """The cluster, whose containers that fetch have the addresses of the servers, and a cache on its node."""
    made = penstock_cluster
    variables = [f"{name}={value}" for name, value in sources.variables.items()]
    example = ExampleFile.read("model-sources/node-cache.yaml", {}).chart_values()
    further = {
        "operator": {"sourceVariables": variables},
        "nodeCache": example["nodeCache"] | {"path": str(made.folder / "node-cache")},
    }
    set_values(made, further)
    yield made
    set_values(made, {})
    kubectl(made)("delete", "daemonset", NODE_CACHE, "-n", NAMESPACE)


def set_values(cluster: Cluster, further: Object) -> None:
    """Install Penstock with further values, and wait until no operator has the earlier ones."""
    asyncio.run(install(cluster, say=print, values=merged(values(cluster), further)))
    kubectl(cluster)("rollout", "status", f"deployment/{OPERATOR}", "-n", NAMESPACE)


def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(ensure_binaries(print)["kubectl"], cluster.kubeconfig)


@pytest.fixture(scope="module")
def volumes(
    chat: Path, models: Path, adapters: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Object]:
    """The claims that the examples take for granted, and the volumes that a storage class would make."""
    folder = tmp_path_factory.mktemp("models")
    # Copies, as engines load no adapter by a link that leads out of the volume.
    for model in (chat, models / MODEL_NAME, ensure_adapters(models)):
        shutil.copytree(model, folder / model.name)
    found = [
        *folder_claim("models", folder, TEAM),
        *folder_claim("adapters", adapters, TEAM),
    ]
    for name in ("adapter-cache", "model-cache"):
        volume, _ = folder_claim(name, tmp_path_factory.mktemp(name), TEAM)
        volume["spec"] |= {"capacity": {"storage": "200Gi"}, "accessModes": ["ReadWriteMany"]}
        found.append(volume)
    return found


@pytest.fixture
async def team(cluster: Cluster, volumes: list[Object]) -> AsyncIterator[Stage]:
    """A namespace with the claims, which is empty again after the test."""
    async with await connect(cluster.kubeconfig) as kube:
        stage = Stage(cluster, kube, TEAM)
        stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        stage.apply(*volumes)
        try:
            yield stage
        finally:
            stage.kubectl("delete", "psvc,lora,secret", "--all")
            await stage.close()


@pytest.mark.parametrize("names", cases(), ids=lambda names: names[0])
async def test_an_example_answers(names: tuple[str, ...], team: Stage, sources: Sources) -> None:
    if names == ("model-sources/azure.yaml",) and AZURE not in sources.variables:
        pytest.skip("azurite comes from npm, which is not installed")
    for name in names:
        example = ExampleFile.read(name, sources.addresses, with_secret=name in WITH_SECRET)
        for command in example.commands(sources.values):
            run(command, team, sources.folder)
        team.kubectl("apply", "-f", "-", stdin=example.text)
        for kind, short in (("InferenceService", "psvc"), ("LoraAdapter", "lora")):
            for each in example.objects(kind):
                wait_until_ready(team, f"{short}/{each['metadata']['name']}")
        for kind in ("InferenceService", "LoraAdapter"):
            for each in example.objects(kind):
                model = each["spec"]["model"].get("name", each["metadata"]["name"])
                assert await answer(team, f"{TEAM}/{model}"), name


def run(command: str, team: Stage, folder: Path) -> None:
    """Run a command of kubectl in a folder, as a user types it."""
    program = shlex.join(team.kubectl.command())
    done = subprocess.run(
        ["bash", "-c", f'kubectl() {{ {program} "$@"; }}\n{command}'],
        cwd=folder, env=team.kubectl.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stderr)


def wait_until_ready(team: Stage, name: str) -> None:
    """Wait as the pages do."""
    words = ("wait", "--for=condition=Ready", name, f"--timeout={WAIT_S}s")
    try:
        team.kubectl(*words, timeout_s=WAIT_S + 10)
    except Exception as error:
        raise AssertionError(team.kubectl("get", name, "-o", "jsonpath={.status}")) from error


async def answer(team: Stage, model: str) -> str:
    """The text of a model's answer, once the gateway knows the model."""
    body = {"model": model, "prompt": "A pod is", "min_tokens": 8, "max_tokens": 12}
    async with httpx.AsyncClient(base_url=team.cluster.gateway_url, timeout=60) as client:
        for _ in range(50):
            response = await client.post("/v1/completions", json=body)
            if response.status_code != 404:
                break
            await asyncio.sleep(0.2)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def test_each_file_that_is_not_run_exists() -> None:
    assert [name for name in NOT_RUN if not (ROOT / name).is_file()] == []
