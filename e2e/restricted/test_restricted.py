"""A namespace that enforces the restricted pod security profile, and has a quota."""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster.service_manifest import service_manifest

from penstock.demo.stage import Stage

pytestmark = pytest.mark.e2e

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
async def namespace(stage: Stage, models: Path) -> AsyncIterator[str]:
    name = f"restricted-{secrets.token_hex(3)}"
    metadata = {"name": name, "labels": RESTRICTED}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    stage.mount_models(models, name)
    yield name
    stage.kubectl("delete", "namespace", name, "--wait=false")
    stage.kubectl("delete", "persistentvolume", f"models-{name}", "--wait=false")


def service(name: str, uri: str) -> str:
    engine = {"maxModelLen": 256, "kvCache": {"memory": "8Mi"}}
    return json.dumps(service_manifest(name, {"model": {"uri": uri}, "engine": engine}))


async def test_a_claim_serves_and_a_folder_of_the_node_is_refused_in_words(
    stage: Stage, models: Path, namespace: str
) -> None:
    for name, uri in {
        "claim": "pvc://models/penstock-tiny",
        "folder": f"file://{models}/penstock-tiny",
    }.items():
        stage.kubectl("apply", "-n", namespace, "-f", "-", stdin=service(name, uri))
    await stage.wait_until(
        lambda view: view.condition("Ready").get("status") == "True",
        "claim", within_s=60, what="the claim serves", namespace=namespace,
    )  # fmt: skip
    await stage.wait_until(
        lambda view: view.condition("Ready").get("reason") == "PodForbidden",
        "folder", within_s=20, what="PodForbidden", namespace=namespace,
    )  # fmt: skip
    message = (await stage.view("folder", namespace)).condition("Ready")["message"]
    print(message)
    assert "restricted" in message
    assert "hostPath" in message
    assert "to a pvc:// URI" in message

    # The change that the message recommends takes effect at once, without waiting for a retry.
    patch: dict[str, Any] = {"spec": {"model": {"uri": "pvc://models/penstock-tiny"}}}
    stage.kubectl(
        "patch", "psvc", "folder", "-n", namespace, "--type=merge", "-p", json.dumps(patch)
    )
    await stage.wait_until(
        lambda view: view.condition("Ready").get("status") == "True",
        "folder", within_s=30, what="the folder became a claim", namespace=namespace,
    )  # fmt: skip


async def test_a_quota_that_allows_no_engine_is_a_condition(stage: Stage, namespace: str) -> None:
    """The preflight pod fits into the quota; an engine pod does not."""
    hard = {"limits.memory": "512Mi"}
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
        "spec": {"hard": hard},
    }  # fmt: skip
    stage.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(quota))
    stage.kubectl(
        "apply", "-n", namespace, "-f", "-", stdin=service("big", "pvc://models/penstock-tiny")
    )
    await stage.wait_until(
        lambda view: view.condition("Ready").get("reason") == "FailedCreate",
        "big", within_s=30, what="FailedCreate", namespace=namespace,
    )  # fmt: skip
    message = (await stage.view("big", namespace)).condition("Ready")["message"]
    print(message)
    assert "exceeded quota" in message
