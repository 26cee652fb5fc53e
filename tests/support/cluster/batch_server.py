"""The chart's batch server in a local cluster of a node agent: what it needs there, and a client of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from penstock.chart.component.batch_token import KEY
from penstock.chart.names import BATCH, NAMESPACE
from penstock.clients.kubernetes.client import Object
from penstock.demo.stage import Stage

TOKEN_SECRET = "batch-token"
TOKEN = "0123456789abcdef0123456789abcdef"
ENDED = ("completed", "failed", "expired", "cancelled")


def batch_values(batch_url: str, gateway_url: str) -> dict[str, Any]:
    """Values of the chart. The URLs take the place of those of Services, which a node agent does not have."""
    return {
        "batch": {
            "enabled": True,
            "tokenSecretName": TOKEN_SECRET,
            "extraArgs": [f"--gateway-url={gateway_url}"],
        },
        "gateway": {"extraArgs": [f"--batch-url={batch_url}"]},
    }


def prepare_batch_server(stage: Stage) -> Path:
    """Make the Secret of the token, and a volume for the chart's claim. Returns the volume's folder."""
    folder = stage.cluster.folder / "batch-store"  # not below /tmp, of which each pod has its own
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "batch-store"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
            "claimRef": {"namespace": NAMESPACE, "name": BATCH},
        },
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN_SECRET, "namespace": NAMESPACE},
        "stringData": {KEY: TOKEN},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    stage.apply(namespace, secret, volume)
    return folder


@dataclass(frozen=True, slots=True)
class BatchClient:
    """A client of files and batches. http: with the URL of a gateway, and a key."""

    http: httpx.AsyncClient

    async def create(self, lines: Sequence[Object]) -> Object:
        """Upload a file with these lines, whose URL is the same, and create its batch."""
        content = "".join(f"{json.dumps(line)}\n" for line in lines)
        form = {"purpose": "batch"}
        file = await self.http.post(
            "/v1/files", data=form, files={"file": ("lines.jsonl", content)}
        )
        file.raise_for_status()
        request = {
            "input_file_id": file.json()["id"],
            "endpoint": lines[0]["url"],
            "completion_window": "24h",
        }
        batch = await self.http.post("/v1/batches", json=request)
        batch.raise_for_status()
        made: Object = batch.json()
        return made

    async def get(self, batch_id: str) -> Object | None:
        """Read a batch; None while the batch server, or the gateway, cannot be reached."""
        try:
            answer = await self.http.get(f"/v1/batches/{batch_id}")
        except httpx.TransportError:
            return None
        if answer.status_code == 503:
            return None
        answer.raise_for_status()
        batch: Object = answer.json()
        return batch

    async def results(self, batch: Object) -> list[Object]:
        """Download the lines of the output file and of the error file."""
        found: list[Object] = []
        for key in ("output_file_id", "error_file_id"):
            if batch.get(key):
                content = await self.http.get(f"/v1/files/{batch[key]}/content")
                content.raise_for_status()
                found += map(json.loads, content.text.splitlines())
        return found


def completion_lines(model: str, number: int, **body: object) -> list[Object]:
    """Lines whose prompts and names differ. body: further fields of each request."""
    return [
        {
            "custom_id": f"line-{index}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": model, "prompt": f"pod {index}", **body},
        }
        for index in range(number)
    ]
