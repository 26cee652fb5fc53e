"""Engines in a cluster load adapters from the volumes of spec.engine.lora.sources."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine_server import launched_engine
from tests.support.engine.merged import MergedModel

from penstock.api.conversion.convert import to_core
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import PODS, VOLUME_CLAIMS, VOLUMES
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.manifests.engine_pod import serve_pod
from penstock.core.spec.service import ENGINE_PORT
from penstock.demo.stage import poll_until
from penstock.local.models_claim import models_claim
from penstock_engine.make_model.adapters import make_adapter

pytestmark = pytest.mark.cluster
model_dir = launched_engine.model_dir

PROMPT, NUM_TOKENS = list(range(40, 60)), 8


async def engine_address(kube: Kube, namespace: str, spec: dict[str, Any]) -> str:
    """Start an engine pod of a service with this spec. Returns its URL once it is ready."""
    metadata = {
        "name": "chat", "namespace": namespace, "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    pod = serve_pod(to_core({"metadata": metadata, "spec": spec}), "none")
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat"}, "spec": pod}
    await kube.create(PODS, namespace, body)
    found: Object = {}

    async def is_ready() -> bool:
        nonlocal found
        found = await kube.get(PODS, namespace, "chat")
        conditions = found.get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    await poll_until(is_ready, within_s=90, what="the engine is ready")
    return f"http://{found['status']['podIP']}:{ENGINE_PORT}"


async def test_adapters_beside_the_model_and_in_a_folder_are_served(
    kube: Kube, namespace: str, model_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_dir, tmp_path / "models" / "soup")
    folders = {
        "pvc://models/loras/law": tmp_path / "models" / "loras" / "law",
        f"file://{tmp_path}/loras/poetry": tmp_path / "loras" / "poetry",
    }
    for seed, folder in enumerate(folders.values()):
        make_adapter(model_dir, folder, seed=seed, rank=4)
    volume, claim = models_claim(tmp_path / "models", namespace)
    await kube.create(VOLUMES, None, volume)
    await kube.create(VOLUME_CLAIMS, namespace, claim)
    sources = ["pvc://models", f"file://{tmp_path}/loras"]
    spec = {
        "model": {"uri": "pvc://models/soup"},
        "engine": {
            "dtype": "float32", "maxModelLen": 256, "kvCache": {"memory": "8Mi"},
            "lora": {"maxAdapters": 2, "sources": sources},
        },
    }  # fmt: skip
    reference = MergedModel(model_dir)
    async with httpx.AsyncClient(
        base_url=await engine_address(kube, namespace, spec), timeout=60
    ) as client:
        for name, (uri, folder) in zip(("law", "poetry"), folders.items(), strict=True):
            version = AdapterVersion(name, uri)
            body = {"lora_name": version.engine_name, "lora_path": version.engine_path}
            loaded = await client.post("/v1/load_lora_adapter", json=body)
            assert loaded.status_code == 200, loaded.text
            answer = await client.post(
                "/v1/completions",
                json={"model": version.engine_name, "prompt": PROMPT, "max_tokens": NUM_TOKENS,
                      "temperature": 0, "ignore_eos": True, "return_token_ids": True},
            )  # fmt: skip
            assert answer.json()["model"] == version.engine_name
            tokens = answer.json()["choices"][0]["token_ids"]
            assert tokens == reference.greedy(folder, PROMPT, NUM_TOKENS)
        outside = {"lora_name": "x", "lora_path": AdapterVersion("x", "pvc://other/x").engine_path}
        refused = await client.post("/v1/load_lora_adapter", json=outside)
        assert refused.status_code == 404
        assert refused.json()["error"]["code"] == "adapter_not_found"
