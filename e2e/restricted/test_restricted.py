"""A namespace that enforces the restricted pod security profile, and has a quota."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.cluster.manifests import RESTRICTED, service_manifest

from penstock.core.spec.service import Object
from penstock.demo.stage import Stage

pytestmark = pytest.mark.e2e


@pytest.fixture
async def namespace(stage: Stage, models: Path) -> AsyncIterator[str]:
    name = f"restricted-{secrets.token_hex(3)}"
    metadata = {"name": name, "labels": RESTRICTED}
    stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    stage.mount_models(models, name)
    yield name
    stage.kubectl("delete", "namespace", name, "--wait=false")
    stage.kubectl("delete", "persistentvolume", f"models-{name}", "--wait=false")


def service(name: str, uri: str = "pvc://models/penstock-tiny") -> Object:
    engine = {"maxModelLen": 256, "kvCache": {"memory": "8Mi"}}
    return service_manifest(name, {"model": {"uri": uri}, "engine": engine})


async def test_a_claim_serves_and_a_folder_of_the_node_is_refused_in_words(
    stage: Stage, models: Path, namespace: str
) -> None:
    folder = service("folder", f"file://{models}/penstock-tiny")
    stage.apply(service("claim"), folder, namespace=namespace)
    await stage.wait_until_ready("claim", within_s=120, namespace=namespace)
    await stage.wait_for_reason("folder", "PodForbidden", within_s=60, namespace=namespace)
    message = (await stage.view("folder", namespace)).condition("Ready")["message"]
    print(message)
    assert "restricted" in message
    assert "hostPath" in message
    assert "to a pvc:// URI" in message

    # The change that the message recommends takes effect at once, without waiting for a retry.
    change = {"model": {"uri": "pvc://models/penstock-tiny"}}
    stage.patch("folder", change, namespace=namespace)
    await stage.wait_until_ready("folder", within_s=120, namespace=namespace)


async def test_a_quota_that_allows_no_engine_is_a_condition(stage: Stage, namespace: str) -> None:
    """The preflight pod fits into the quota; an engine pod does not."""
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
        "spec": {"hard": {"limits.memory": "1Gi"}},
    }  # fmt: skip
    big = service("big")
    big["spec"]["resources"] = {"limits": {"cpu": 1, "memory": "2Gi"}}
    stage.apply(quota, big, namespace=namespace)
    await stage.wait_for_reason("big", "FailedCreate", within_s=120, namespace=namespace)
    message = (await stage.view("big", namespace)).condition("Ready")["message"]
    print(message)
    assert "exceeded quota" in message
