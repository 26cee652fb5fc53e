"""Specs that only the operator can recognize as wrong get a condition with a message, not a crash loop."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster.manifests import service_manifest

from penstock.clients.kubernetes.resources import DEPLOYMENTS, PODS
from penstock.core.spec.service import SERVICE_LABEL
from penstock.demo.stage import Stage, poll_until

pytestmark = pytest.mark.e2e

Spoil = Callable[[Path], None]


def shorten(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])


def rename_architecture(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": ["Other"]}))


SPOILED: dict[str, tuple[Spoil, str]] = {
    "no-config": (lambda f: (f / "config.json").unlink(), "NotAModel"),
    "broken-config": (lambda f: (f / "config.json").write_text("{"), "BadConfig"),
    "architecture": (rename_architecture, "UnsupportedArchitecture"),
    "pickle": (lambda f: (f / "model.safetensors").rename(f / "model.bin"), "NoSafetensors"),
    "truncated": (shorten, "BadWeights"),
    "no-tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "NoTokenizer"),
}
SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "missing-path": ({"model": {"uri": "pvc://models/nowhere"}}, "ModelNotFound"),
    "missing-folder": ({"model": {"uri": "file:///nowhere"}}, "FailedMount"),
    "missing-template": (
        {
            "engine": {
                "parsers": {"chatTemplate": {"configMapKeyRef": {"name": "nowhere", "key": "a"}}}
            }
        },
        "FailedMount",
    ),
    "missing-claim": ({"model": {"uri": "pvc://nobody/x"}}, "Unschedulable"),
    "little-memory": ({"resources": {"limits": {"memory": "700Mi"}}}, "MemoryTooSmall"),
    "little-kv": ({"engine": {"kvCache": {"memory": "64Ki"}}}, "KVCacheTooSmall"),
    "long-context": ({"engine": {"maxModelLen": 1000000}}, "ContextTooLong"),
    "bad-template": (
        {"template": {"spec": {"containers": [{"name": "side"}]}}},
        "PodTemplateRejected",
    ),
    "no-gpu": (
        {"template": {"spec": {"nodeSelector": {"has": "nothing"}}}},
        "Unschedulable",
    ),
}


async def test_each_becomes_a_condition(stage: Stage, models: Path, tmp_path: Path) -> None:
    wanted: dict[str, str] = {}
    for name, (spoil, reason) in SPOILED.items():
        folder = tmp_path / name
        shutil.copytree(models / "penstock-tiny", folder)
        spoil(folder)
        stage.apply(service_manifest(name, {"model": {"uri": f"file://{folder}"}}))
        wanted[name] = reason
    for name, (spec, reason) in SPECS.items():
        stage.apply(service_manifest(name, spec))
        wanted[name] = reason

    seen: dict[str, tuple[str, str]] = {}

    async def all_refused() -> bool:
        for name in wanted:
            ready = (await stage.view(name)).condition("Ready")
            seen[name] = (ready.get("reason", ""), ready.get("message", ""))
        return all(seen[name][0] == reason for name, reason in wanted.items())

    try:
        await poll_until(all_refused, within_s=60, what="every refusal")
    except TimeoutError:
        wrong = {name: seen[name] for name in wanted if seen[name][0] != wanted[name]}
        raise AssertionError(f"other reasons than wanted: {wrong}") from None
    for name, (reason, message) in sorted(seen.items()):
        print(f"{name}: {reason}: {message}")
        deployments, _ = await stage.kube.list(
            DEPLOYMENTS, "default", labelSelector=f"{SERVICE_LABEL}={name}"
        )
        assert deployments == []
        pods, _ = await stage.kube.list(PODS, "default", labelSelector=f"{SERVICE_LABEL}={name}")
        assert len(pods) <= 1
        for pod in pods:
            statuses = pod["status"].get("containerStatuses", [])
            assert sum(status["restartCount"] for status in statuses) == 0
    print(f"{len(wanted)} refusals became conditions")


async def test_a_name_that_is_served_already_is_refused_to_the_younger(stage: Stage) -> None:
    stage.apply(service_manifest("first", {}))
    await stage.wait_for_engines("first", 1, within_s=60)
    spec = {"model": {"uri": "pvc://models/penstock-tiny", "name": "first"}}
    stage.apply(service_manifest("second", spec))
    await stage.wait_for_reason("second", "ModelNameInUse", within_s=30)
    stage.kubectl("delete", "psvc", "first")
    await stage.wait_until_ready("second", within_s=60)
