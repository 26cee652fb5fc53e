"""`kubectl apply -f examples/tiny-model.yaml`, an answer, and nothing left after deletion."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from tests.support.cluster.quiet_writes import writes_while_quiet

from penstock.demo.stage import Stage

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-model.yaml"

pytestmark = pytest.mark.e2e


async def test_applied_answered_deleted(stage: Stage) -> None:
    stage.kubectl("apply", "-f", str(EXAMPLE))
    print(f"apply to Ready: {await stage.wait_until_ready('chat', within_s=120):.1f} s")

    body = {
        "model": "chat",
        "messages": [{"role": "user", "content": "Tell me about the gateway."}],
        "min_tokens": 4,  # a model that was trained on a busy machine may end its answer at once
        "max_tokens": 24,
        "temperature": 0,
    }
    url = f"{stage.cluster.gateway_url}/v1/chat/completions"
    async with httpx.AsyncClient(timeout=30) as client:
        whole = (await client.post(url, json=body)).json()["choices"][0]["message"]["content"]
        answer = await client.post(url, json=body | {"stream": True})
    events = [json.loads(x[6:]) for x in answer.text.splitlines() if x.startswith("data: {")]
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    assert text == whole
    assert text

    table = stage.kubectl("get", "psvc", "chat").splitlines()
    assert table[0].split() == [
        "NAME",
        "READY",
        "REASON",
        "DESIRED",
        "READY-REPLICAS",
        "AGE",
    ]
    assert table[1].split()[1:3] == ["True", "Ready"]

    stage.kubectl("delete", "psvc", "chat")
    gone_s = await stage.wait_until_gone("chat", within_s=60)
    print(f"delete to nothing left: {gone_s:.1f} s")
    assert await stage.remains("chat") == []


async def test_a_converged_service_is_not_written_to(stage: Stage) -> None:
    """Ten seconds of `benchmarks/cluster/idle_writes.py`."""
    stage.kubectl("apply", "-f", str(EXAMPLE))
    await stage.wait_until(
        lambda view: view.scaling.get("desiredReplicas") == 1,
        "chat", within_s=120, what="a decision",
    )  # fmt: skip
    await asyncio.sleep(4)
    assert await writes_while_quiet(stage, "chat", seconds=10) == []
