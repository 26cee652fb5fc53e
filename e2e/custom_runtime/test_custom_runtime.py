"""A server of the user as runtime: checked, served, scaled by its metrics, and no field without effect."""

from typing import Any

import httpx
import pytest
from tests.support.cluster.manifests import service_manifest

from penstock.demo.stage import Stage
from penstock.local.kubelet.images import ENGINE_IMAGE

pytestmark = pytest.mark.e2e

CUSTOM: dict[str, Any] = {
    "image": ENGINE_IMAGE,
    "command": ["penstock-engine"],
    "args": [
        "serve", "$(MODEL_PATH)", "--served-model-name=$(MODEL_NAME)", "--host=$(POD_IP)", "--port=$(PORT)",
    ],
    "readinessPath": "/ready",
    "metrics": {"dialect": "VLLM"},
}  # fmt: skip


def apply(stage: Stage, **spec: Any) -> None:
    runtime = {"type": "Custom", "custom": CUSTOM}
    stage.apply(service_manifest("theirs", {"runtime": runtime, **spec}))


async def answer(stage: Stage) -> str:
    body = {"model": "theirs", "prompt": "The gateway", "max_tokens": 8, "temperature": 0}
    async with httpx.AsyncClient(timeout=30) as client:
        got = await client.post(f"{stage.cluster.gateway_url}/v1/completions", json=body)
    got.raise_for_status()
    text: str = got.json()["choices"][0]["text"]
    return text


async def test_a_server_of_the_user(stage: Stage) -> None:
    apply(stage)
    await stage.wait_until_ready("theirs", within_s=120)
    await stage.wait_until(
        lambda view: view.scaling.get("desiredReplicas") == 1,
        "theirs", within_s=60, what="a decision by its metrics",
    )  # fmt: skip
    text = await answer(stage)
    assert text

    apply(stage, engine={"maxNumSeqs": 8})
    await stage.wait_for_reason("theirs", "UnsupportedByRuntime", kind="SpecValid", within_s=60)
    valid = (await stage.view("theirs")).condition("SpecValid")
    assert valid["status"] == "False"
    assert "spec.engine.maxNumSeqs" in valid["message"]
    assert await answer(stage) == text


async def test_a_custom_server_without_its_model_is_a_condition(stage: Stage) -> None:
    apply(stage, model={"uri": "pvc://models/nowhere"})
    await stage.wait_for_reason("theirs", "ModelNotFound", kind="ModelReady", within_s=60)
    assert (await stage.view("theirs")).condition("ModelReady")["status"] == "False"
