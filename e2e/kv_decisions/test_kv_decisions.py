"""A service without objectives: its decisions by KV use are explained, recorded and replayed."""

import asyncio
from pathlib import Path

import pytest
from tests.support.cluster.penstock_command import penstock

from penstock.core.scaling.by_kv.tick import KvSettings
from penstock.core.scaling.recording import Recording
from penstock.demo.load import Load, Workload, corpus
from penstock.demo.stage import Stage, poll_until

ROOT = Path(__file__).parents[2]
SERVICE = "chat"

pytestmark = pytest.mark.e2e


async def test_explained_recorded_and_replayed(stage: Stage, tmp_path: Path) -> None:
    stage.kubectl("apply", "-f", str(ROOT / "examples" / "tiny-model.yaml"))
    await stage.wait_for_engines(SERVICE, 1, within_s=120)
    file = tmp_path / "load.jsonl"
    work = Workload(SERVICE, corpus(ROOT), prompt_words=110, max_tokens=64, seed=1)

    async def is_recording() -> bool:
        return file.exists()

    async with Load(stage.cluster.gateway_url, work) as load, asyncio.TaskGroup() as group:
        recording = group.create_task(
            penstock(stage, "record", SERVICE, "--for", "20s", "-o", str(file))
        )
        await poll_until(is_recording, within_s=60, what="the first recorded decision")
        load.set_clients(24)
        await stage.wait_until(
            lambda view: view.scaling.get("desiredReplicas", 1) > 1,
            SERVICE, within_s=60, what="a second engine",
        )  # fmt: skip
        why = await penstock(stage, "explain", SERVICE)
        assert "What would change the number:" in why
        assert "KV demand" in why
        await recording
        load.set_clients(0)
        await load.finish()
    print(why)

    with file.open() as lines:
        recorded = Recording.read(lines)
    assert isinstance(recorded.header.settings, KvSettings)
    assert len({each.decision.desired for each in recorded.lines}) > 1
    assert "all identical" in await penstock(stage, "replay", str(file))
    for policy, param in (("kv", "kv_utilization_target=0.2"), ("hpa-kv", "target=0.5")):
        comparison = await penstock(
            stage, "replay", str(file), "--policy", policy, "--param", param
        )
        assert "mean" in comparison

    changed = await penstock(stage, "explain", SERVICE, "--set", "minReplicas=3")
    assert "3 replicas" in changed
    refused = await penstock(stage, "explain", SERVICE, "--set", "ttft=1s", code=1)
    assert "no setting 'ttft'" in refused
