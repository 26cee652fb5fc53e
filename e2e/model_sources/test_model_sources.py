"""A model of a hub that wants a token is fetched once for all replicas, and not again if a tag moves."""

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from tests.support.sources.hub_server import HubServer

from penstock.clients.kubernetes.client import Object
from penstock.demo.stage import Stage
from penstock.local.models_claim import folder_claim

ROOT = Path(__file__).parents[2]
NAME, GATED, TOKEN = "from-hub", "from-gated", "hf_e2e"
SECRET, CACHE = "hub", "model-cache"
WEIGHTS = "model.safetensors"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.node_agent("the hub listens on the loopback address of this machine"),
]


@pytest.fixture
def hub(models: Path) -> Iterator[HubServer]:
    """A hub with the tiny model, which only the token may read, and with a gated one."""
    folder = models / "penstock-tiny"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with HubServer() as server:
        server.add("org/tiny", files, token=TOKEN)
        server.add("org/gated", files, token="another", is_gated=True)
        yield server


def service(name: str, uri: str, **model: object) -> Object:
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"] = {"name": name}
    made["spec"]["model"] = {"uri": uri, "secretRef": {"name": SECRET}, **model}
    made["spec"]["engine"].pop("lora")
    made["spec"]["scaling"] = {"minReplicas": 2, "maxReplicas": 3}
    return made


def secret(hub: HubServer) -> Object:
    values = {"HF_TOKEN": TOKEN, "HF_ENDPOINT": hub.url}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def answer(stage: Stage, model: str) -> str:
    """The model's answer to a request at the gateway."""
    body = {"model": model, "prompt": "hello", "max_tokens": 4}
    response = httpx.post(f"{stage.cluster.gateway_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


async def test_a_model_is_fetched_once_for_all_replicas(
    stage: Stage, hub: HubServer, pod_folder: Path
) -> None:
    repository = hub.repositories["org/tiny"]
    commit = repository.revisions["main"]
    stage.mount(folder_claim(CACHE, pod_folder))
    stage.apply(secret(hub))
    cache = {"claimName": CACHE, "sizeLimit": "1Gi"}
    stage.apply(service(NAME, "hf://org/tiny@main", cache=cache))
    await stage.wait_for_engines(NAME, 2, within_s=180)
    assert answer(stage, NAME)
    size = len(repository.commits[commit][WEIGHTS])
    # The preflight reads the header, and one pod of both the weights.
    assert size <= hub.cdn.sent_bytes < 1.5 * size
    view = await stage.view(NAME)
    assert view.status["model"]["resolvedURI"] == f"hf://org/tiny@{commit}"

    files = dict(repository.commits[commit])
    repository.commit(files | {"config.json": b"{}"})
    sent = hub.cdn.sent_bytes
    stage.patch(NAME, {"scaling": {"minReplicas": 3}})
    await stage.wait_for_engines(NAME, 3, within_s=120)
    assert hub.cdn.sent_bytes == sent
    assert (await stage.view(NAME)).status["model"] == view.status["model"]

    events = stage.kubectl("get", "events", "--field-selector", f"involvedObject.name={NAME}")
    assert "Ready" in events


async def test_a_gated_model_is_refused_before_an_engine_starts(
    stage: Stage, hub: HubServer
) -> None:
    stage.apply(secret(hub))
    stage.apply(service(GATED, "hf://org/gated"))
    await stage.wait_for_reason(GATED, "GatedModel", within_s=90)
    view = await stage.view(GATED)
    assert view.pods == ()
    assert "org/gated is gated" in view.condition("ModelReady")["message"]
    assert view.condition("Stalled")["status"] == "True"
