"""Log of a real operator process: JSON lines only, and one for a reconcile that wrote something."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.demo.stage import poll_until
from penstock.local.cluster import Cluster
from penstock.observability import logs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_operator_logs_reconciles_as_json(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "s", "namespace": namespace},
        "spec": {"model": {"uri": "pvc://nowhere/x"}},
    }  # fmt: skip
    await kube.create(INFERENCE_SERVICES, namespace, body)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", "operator", "run", "--engine-image", "penstock",
            "--host", "127.0.0.1", "--port", "0", "--lease-namespace", namespace,
            env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
            stdout=output, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    service = f"{namespace}/s"

    def reconciled() -> list[dict[str, Any]]:
        found = (line for line in lines(log) if line["message"] == "reconciled")
        return [line for line in found if line["service"] == service]

    async def has_created_a_pod() -> bool:
        written = [each for line in reconciled() for each in line["written"]]
        return any(each.startswith("create Pod/s-") for each in written)

    try:
        await poll_until(has_created_a_pod, within_s=60, what="the line of a preflight")
    finally:
        process.terminate()
        await process.wait()
    known = logs.RECONCILE.keys() | {"time", "level", "logger", "message"}
    for line in reconciled():
        assert line.keys() <= known
        assert line["revision"]
        assert line["written"]
        assert line["phase"]
