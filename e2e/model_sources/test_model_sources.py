"""Models and adapters of a hub that wants a token are fetched once, and not again if a tag moves."""

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from tests.support.cluster.adapted_service import NAME as ADAPTED
from tests.support.cluster.adapted_service import NUM_TOKENS, AdaptedService
from tests.support.cluster.adapted_service import service as adapted_service
from tests.support.cluster.manifests import adapter_manifest
from tests.support.engine.merged import MergedModel
from tests.support.sources.hub_server import HubServer

from penstock.clients.kubernetes.client import Object
from penstock.demo.stage import Stage, poll_until
from penstock.local.models_claim import folder_claim
from penstock_engine.make_model.adapters import make_adapters

ROOT = Path(__file__).parents[2]
NAME, GATED, TOKEN = "from-hub", "from-gated", "hf_e2e"
SECRET, CACHE = "hub", "model-cache"
WEIGHTS = "model.safetensors"
PROMPT = list(range(40, 60))

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
    body = {"model": model, "prompt": "hello", "min_tokens": 2, "max_tokens": 4}
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


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def is_on_both(adapted: AdaptedService) -> bool:
    """Whether both engines have the adapter. The placement may know one of them a pass later."""
    status = (await adapted.statuses()).get("sql", {})
    return bool(status.get("loadedReplicas") == 2)


async def is_promoted(stage: Stage, adapted: AdaptedService, before: str) -> bool:
    """Whether another version of the adapter has the traffic; promotes one that is judged.

    Without requests in the last minute it is not judged.
    """
    status = (await adapted.statuses())["sql"]
    reasons = {each["type"]: each["reason"] for each in status["conditions"]}
    if reasons["RolledOut"] == "Judging" and reasons["Loaded"] == "AllLoaded":
        await stage.rollout("promote", "lora/sql")
    return bool(status.get("stableRevision") not in (None, before))


async def test_an_adapter_is_fetched_once_for_all_engines(
    stage: Stage, hub: HubServer, models: Path, pod_folder: Path, tmp_path: Path
) -> None:
    """The service's own model is in a volume; its cache has the adapters."""
    model = models / "penstock-tiny"
    first, second = make_adapters(model, tmp_path, 2)
    answers = [MergedModel(model).greedy(each, PROMPT, NUM_TOKENS) for each in (first, second)]
    repository = hub.add("org/sql", files_of(first), token=TOKEN)
    commit = repository.revisions["main"]
    stage.mount(folder_claim(CACHE, pod_folder))
    stage.apply(secret(hub))
    source = {"uri": "pvc://models/penstock-tiny", "name": ADAPTED, "cache": {"claimName": CACHE}}
    lora = {"maxAdapters": 2, "maxCPUAdapters": 4, "maxRank": 16}
    stage.apply(adapted_service({"lora": lora}, model=source))
    wanted = {"uri": "hf://org/sql@main", "secretRef": {"name": SECRET}}
    body = adapter_manifest("sql", ADAPTED, "", placement={"policy": "All"}, model=wanted)
    stage.apply(body)
    adapted = AdaptedService(stage)
    try:
        await stage.wait_for_engines(ADAPTED, 2, within_s=120)
        await poll_until(
            lambda: is_on_both(adapted), within_s=60, what="both engines have the adapter"
        )
        status = await adapted.wait_for("sql", Loaded="AllLoaded", Ready="Ready")
        (record,) = status["fetchedVersions"]
        assert (record["claimName"], record["resolvedURI"]) == (CACHE, f"hf://org/sql@{commit}")
        await adapted.wait_for_models(["sql"])
        assert await adapted.tokens("sql", PROMPT) == answers[0]
        size = len(repository.commits[commit]["adapter_model.safetensors"])
        assert size <= hub.cdn.sent_bytes < 1.5 * size

        repository.commit(files_of(second), "v2")
        stage.patch("sql", {"model": {"uri": "hf://org/sql@v2"}}, kind="lora")
        await poll_until(
            lambda: is_promoted(stage, adapted, status["stableRevision"]),
            within_s=90,
            what="v2 is promoted",
        )
        status = await adapted.wait_for("sql", within_s=60, RolledOut="Stable", Loaded="AllLoaded")
        assert len(status["fetchedVersions"]) == 2
        assert await adapted.tokens("sql", PROMPT) == answers[1]
    finally:
        stage.kubectl("delete", "lora", "--all")
        await adapted.close()
