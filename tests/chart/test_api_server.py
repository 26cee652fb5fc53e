"""The API server accepts the objects, in a namespace that enforces the restricted pod security standard."""

from typing import Any

import pytest
from tests.chart.value_sets import IMAGE, VALUE_SETS
from tests.support.cluster import manifests

from penstock.chart.rendering.install import install_manifests
from penstock.chart.values.values import merged
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import KINDS, NAMESPACES, PODS
from penstock.errors import Forbidden

pytestmark = pytest.mark.cluster

RESTRICTED = {"metadata": {"labels": manifests.RESTRICTED}}


@pytest.fixture
async def restricted(kube: Kube, namespace: str) -> str:
    await kube.merge(NAMESPACES, None, namespace, RESTRICTED, manager="test")
    return namespace


def objects(values: dict[str, Any], namespace: str) -> list[Any]:
    # The namespace of keys does not exist here, and may not be the release's.
    values = merged(merged(IMAGE, values), {"gateway": {"keysNamespace": "default"}})
    if values.get("watchNamespace"):
        values["watchNamespace"] = namespace
    made = install_manifests(values, namespace)
    return [each for each in made if each["kind"] in KINDS and each["kind"] != "Namespace"]


# The standard forbids the node's network.
FITTING = {
    name: values
    for name, values in VALUE_SETS.items()
    if not values.get("gateway", {}).get("hostNetwork")
}


@pytest.mark.parametrize("values", FITTING.values(), ids=FITTING)
async def test_all_objects_are_accepted(
    kube: Kube, restricted: str, values: dict[str, Any]
) -> None:
    for manifest in objects(values, restricted):
        await kube.apply(manifest, manager="test", dry_run=True)
        if manifest["kind"] == "Deployment":
            await create_pod(kube, restricted, manifest)


async def create_pod(kube: Kube, namespace: str, deployment: Any) -> None:
    """Create a pod of a Deployment, without keeping it. Raises Forbidden."""
    template = deployment["spec"]["template"]
    account = template["spec"]["serviceAccountName"]
    metadata = {"name": account, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    await kube.apply(body, manager="test")
    metadata = template["metadata"] | {"name": account}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    await kube.create(PODS, namespace, pod, dryRun="All")


async def test_a_pod_on_the_nodes_network_is_refused_there(kube: Kube, restricted: str) -> None:
    deployments = [
        each
        for each in objects(VALUE_SETS["host_network"], restricted)
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "penstock-gateway"
    ]
    with pytest.raises(Forbidden, match="hostNetwork"):
        await create_pod(kube, restricted, deployments[0])
