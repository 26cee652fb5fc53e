"""One service against a real API server: what is left of another of its name is waited for."""

import pytest

from penstock.adapters.kube import Kube
from penstock.adapters.resources import CONTROLLER_REVISIONS, INFERENCE_SERVICES, PODS
from penstock.api.convert import to_core
from penstock.controller.reconciler import Reconciler
from penstock.core.history import Revision
from penstock.core.manifests.history import controller_revision
from penstock.core.revision import revision_of
from penstock.core.service import Object
from penstock.errors import Transient

pytestmark = pytest.mark.cluster

NAME = "again"


async def make(kube: Kube, namespace: str, name: str) -> Object:
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": "pvc://models/tiny"}},
    }
    return await kube.create(INFERENCE_SERVICES, namespace, body)


async def test_a_service_made_again_waits_for_what_is_left_of_the_first(
    kube: Kube, namespace: str
) -> None:
    spec = to_core(await make(kube, namespace, NAME))
    owner = await make(kube, namespace, "other")  # one that is there: nobody collects what it owns
    left = controller_revision(spec, Revision("", "", revision_of(spec), 1, spec.shape))
    left["metadata"]["ownerReferences"][0] |= {
        "name": "other", "uid": owner["metadata"]["uid"],
    }  # fmt: skip
    await kube.create(CONTROLLER_REVISIONS, namespace, left)
    reconciler = Reconciler(
        kube, "penstock", services=dict, scaling=lambda _: None, judgement=lambda *_: None,
        obeyed=lambda _: None,
    )  # fmt: skip
    await reconciler.reconcile((namespace, NAME))  # the first phase is written down
    with pytest.raises(Transient, match="not remembered yet"):
        await reconciler.reconcile((namespace, NAME))
    assert (await kube.list(PODS, namespace))[0] == []

    await kube.delete(CONTROLLER_REVISIONS, namespace, left["metadata"]["name"])
    await reconciler.reconcile((namespace, NAME))

    (entry,), _ = await kube.list(CONTROLLER_REVISIONS, namespace)
    assert entry["data"] == spec.shape
    assert [pod["metadata"]["name"] for pod in (await kube.list(PODS, namespace))[0]] == [
        f"{NAME}-{revision_of(spec)}-preflight"
    ]
