"""Versions of an adapter under load: an equal one is promoted, a broken one is rolled back, undo returns."""

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file, save_file
from tests.support.cluster.manifests import adapter_manifest

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.core.adapters.adapter import AdapterVersion
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.stage import Stage, poll_until
from penstock_engine.make_model.adapters import make_adapter

ROOT = Path(__file__).parents[2]
NAME, TEAM = "rolled-lora", "lora-versions"
TARGET = ("lora/sql", "-n", TEAM)
FIRST, EQUAL, BROKEN = (f"pvc://models/adapters/{name}" for name in ("v1", "v2", "broken"))
WEIGHTS = "adapter_model.safetensors"
# The judge needs at least five minutes to accept a version, however many requests there are. With a few
# requests per second the bounds on latencies are then a third of this tolerance or less. The probability
# that an equal version is rolled back is below alpha, by default 1 %.
CANARY = {
    "minWeightPercent": 30, "maxWeightPercent": 50, "latencyTolerancePercent": 50,
    "errorTolerancePercent": 5, "violationTolerancePercent": 10, "maxDuration": "12m",
}  # fmt: skip

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def folder(models: Path, pod_folder: Path) -> Path:
    """A folder with the demo's model and three versions of an adapter.

    v2 is v1 in another folder. The factors of the broken one are finite, so that engines load it, and so
    large that its logits overflow.
    """
    model = pod_folder / "penstock-tiny"
    shutil.copytree(models / "penstock-tiny", model)
    first = make_adapter(model, pod_folder / "adapters" / "v1", seed=1)
    shutil.copytree(first, pod_folder / "adapters" / "v2")
    broken = shutil.copytree(first, pod_folder / "adapters" / "broken")
    factors = load_file(broken / WEIGHTS)
    save_file({name: factor * 1e30 for name, factor in factors.items()}, broken / WEIGHTS)
    (broken / WEIGHTS).chmod(0o644)  # save_file makes it unreadable for a pod's user
    return pod_folder


def service() -> Object:
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"] = {"name": NAME}
    made["spec"]["engine"]["lora"] = {"maxAdapters": 4, "maxRank": 16}
    rollout = {"strategy": "Canary", "canary": CANARY}
    made["spec"] |= {"scaling": {"mode": "External"}, "replicas": 1, "rollout": rollout}
    return made


async def status(stage: Stage) -> Object:
    found: Object = (await stage.kube.get(LORA_ADAPTERS, TEAM, "sql")).get("status", {})
    return found


async def until(stage: Stage, phase: str, within_s: float) -> Object:
    """Wait until the rollout is in a phase. Returns the adapter's status."""

    async def holds() -> bool:
        return ((await status(stage)).get("rollout") or {}).get("phase") == phase

    try:
        took_s = await poll_until(holds, within_s=within_s, what=phase)
    except TimeoutError:
        raise AssertionError(json.dumps(await status(stage), indent=1)) from None
    print(f"{phase} after {took_s:.0f} s")
    return await status(stage)


def change(stage: Stage, uri: str) -> None:
    stage.patch("sql", {"model": {"uri": uri}}, kind="lora", namespace=TEAM)


def events(stage: Stage) -> str:
    """Messages of the adapter's Events."""
    selector = "involvedObject.kind=LoraAdapter,involvedObject.name=sql"
    command = ("get", "events", "-n", TEAM, "--field-selector", selector)
    return stage.kubectl(*command, "-o", "jsonpath={.items[*].message}")


def stable(found: Object) -> str:
    (share,) = found["traffic"]
    assert share["percent"] == 100
    assert share["revision"] == found["stableRevision"]
    return str(share["uri"])


async def test_versions_of_an_adapter(stage: Stage, folder: Path) -> None:
    stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    adapter = adapter_manifest("sql", NAME, FIRST, placement={"minReplicas": 1})
    try:
        stage.mount_models(folder, TEAM)
        stage.apply(service(), adapter, namespace=TEAM)
        await stage.wait_for_engines(NAME, 1, within_s=120, namespace=TEAM)
        await _roll_out(stage)
    finally:
        stage.kubectl("delete", "namespace", TEAM, "--wait=false")
        stage.kubectl("delete", "persistentvolume", f"models-{TEAM}", "--wait=false")


async def _roll_out(stage: Stage) -> None:
    workload = Workload("sql", corpus(ROOT), prompt_words=20, max_tokens=8, seed=1, think_s=1.0)
    async with Load(stage.cluster.gateway_url, workload) as load:
        load.set_clients(6)
        await poll_until(lambda: _has_answers(load, 20), within_s=60, what="20 answers")
        await asyncio.sleep(6)  # three passes of the operator, which then counts the requests
        change(stage, EQUAL)
        found = await until(stage, "Judging", within_s=30)
        assert {each["uri"]: each["percent"] for each in found["traffic"]} == {FIRST: 70, EQUAL: 30}
        found = await until(stage, "Stable", within_s=800)
        assert stable(found) == EQUAL
        evidence = {each["metric"]: each for each in found["rollout"]["evidence"]}
        print(evidence)
        within = {name for name, each in evidence.items() if each["verdict"] == "Within"}
        assert within >= evidence.keys() - {"Output length"}
        assert evidence["TTFT"]["canarySamples"] > 50
        assert "all within tolerance" in events(stage)
        assert [each for each in load.outcomes if each.end is not End.DONE] == []

        number = len(load.outcomes)
        change(stage, BROKEN)
        found = await until(stage, "Rejected", within_s=240)
        assert stable(found) == EQUAL
        print(found["rollout"]["rejected"]["message"])
        bad = AdapterVersion("sql", BROKEN)
        assert found["rollout"]["rejected"]["revision"] == bad.revision
        code, said = await stage.rollout("status", *TARGET, "--watch")
        assert (code, "was rejected" in said) == (1, True), said
        ends = Counter(each.end for each in load.outcomes[number:])
        print(f"while the broken version had requests: {ends}")
        assert ends[End.DONE] > 0

        code, said = await stage.rollout("undo", *TARGET, "--watch")
        assert code == 0, said
        assert stable(await status(stage)) == EQUAL
        code, said = await stage.rollout("undo", *TARGET)
        assert (code, FIRST in said) == (0, True), said
        await until(stage, "Judging", within_s=30)
        code, said = await stage.rollout("promote", *TARGET, "--watch")
        assert code == 0, said
        assert stable(await status(stage)) == FIRST
        code, said = await stage.rollout("history", *TARGET)
        assert code == 0
        assert [said.index(uri) for uri in (FIRST, BROKEN, EQUAL)] == sorted(
            said.index(uri) for uri in (FIRST, BROKEN, EQUAL)
        ), said
        number = len(load.outcomes)
        await poll_until(lambda: _has_answers(load, number + 10), within_s=30, what="10 answers")
        await load.finish()
        assert [each for each in load.outcomes[number:] if each.end is not End.DONE] == []


async def _has_answers(load: Load, number: int) -> bool:
    return len(load.outcomes) >= number
