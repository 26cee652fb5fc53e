"""The reconciler against a real API server: recreated services, delayed writes and conflicts."""

import asyncio
import time
from typing import Any

import pytest
from tests.controller.disruption_budgets import listed_budgets

from penstock.api.conversion.convert import to_core
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    KINDS,
    PODS,
)
from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reconciler import Reconciler
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.manifests.history import controller_revision
from penstock.core.observed.children import owner_uid
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import ROLE_LABEL, SERVE, Object
from penstock.errors import AlreadyExists, Conflict, NotFound, Transient

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


async def test_a_recreated_service_waits_for_leftovers_of_the_first(
    kube: Kube, namespace: str
) -> None:
    spec = to_core(await make(kube, namespace, NAME))
    owner = await make(kube, namespace, "other")  # it exists, so its objects are not garbage
    leftover = controller_revision(
        spec, Revision("", "", revision_of(spec), 1, spec.recorded_fields)
    )
    leftover["metadata"]["ownerReferences"][0] |= {
        "name": "other", "uid": owner["metadata"]["uid"],
    }  # fmt: skip
    await kube.create(CONTROLLER_REVISIONS, namespace, leftover)
    reconciler = Reconciler(
        kube, "penstock", services=dict, names=ModelNames(),
        budgets=listed_budgets(kube), scaling=lambda *_: None,
        judgement=lambda *_: None, applied_generations=lambda _: None,
        gateway_url="", gone=lambda _: None,
    )  # fmt: skip
    await reconciler.reconcile((namespace, NAME))  # writes the first phase to the status
    with pytest.raises(Transient, match="of a deleted service"):
        await reconciler.reconcile((namespace, NAME))
    assert (await kube.list(PODS, namespace))[0] == []

    await kube.delete(CONTROLLER_REVISIONS, namespace, leftover["metadata"]["name"])
    await reconciler.reconcile((namespace, NAME))

    (entry,), _ = await kube.list(CONTROLLER_REVISIONS, namespace)
    assert entry["data"] == spec.recorded_fields
    assert [pod["metadata"]["name"] for pod in (await kube.list(PODS, namespace))[0]] == [
        f"{NAME}-{revision_of(spec)}-preflight"
    ]


async def test_a_recreated_service_does_not_adopt_old_children(stand: Any, kube: Kube) -> None:
    """`kubectl replace --force` recreates a service before its children are garbage-collected."""
    old = await stand.create()
    await stand.until_phase("Stable")
    await stand.step()
    (first,), _ = await kube.list(DEPLOYMENTS, stand.namespace)
    name = first["metadata"]["name"]
    held = [(kind, stand.namespace, name) for kind in (CONTROLLER_REVISIONS, DEPLOYMENTS)]
    served = {pod["metadata"]["uid"] for pod in await stand.pods()}
    # A finalizer holds the children: the garbage collector may be faster than the first step.
    hold = {"op": "add", "path": "/metadata/finalizers", "value": ["penstock.dev/test"]}
    for child in held:
        await kube.patch(*child, [hold], manager="test")
    await kube.delete(INFERENCE_SERVICES, *stand.key)
    await stand.create()

    while "of a deleted service" not in str(stand.error):
        await stand.step()
        assert not (await stand.status()).get("readyReplicas")
        await asyncio.sleep(0.1)
    assert await stand.deployment_uids() == {first["metadata"]["uid"]}
    release = {"op": "remove", "path": "/metadata/finalizers"}
    for child in held:
        await kube.patch(*child, [release], manager="test")
    await _collect_garbage(kube, stand.namespace, old["metadata"]["uid"])
    while first["metadata"]["uid"] in await stand.deployment_uids():
        await stand.step()
        assert not (await stand.status()).get("readyReplicas")
        await asyncio.sleep(0.1)
    await stand.until_phase("Stable")

    ready = {pod["metadata"]["uid"] for pod in await stand.pods() if pod["status"].get("podIP")}
    assert ready - served
    assert (await stand.status())["readyReplicas"] == len(ready - served)


async def test_a_deployment_that_is_created_again_keeps_its_pods(stand: Any, kube: Kube) -> None:
    """Users do so with `kubectl delete deployment --cascade=orphan`, to change an immutable field."""
    made = (await stand.create(scaling={"mode": "External"}, replicas=3))["metadata"]
    # Timestamps have no fractions: pods of the same second could be a deleted service's.
    await asyncio.sleep(parse_timestamp(made["creationTimestamp"]) + 1.0 - time.time())

    async def are_ready() -> bool:
        return bool((await stand.status()).get("readyReplicas") == 3)

    await stand.until(are_ready)
    engines = {pod["metadata"]["uid"] for pod in await _engines(stand)}
    (first,) = await stand.deployment_uids()
    name = (await _engines(stand))[0]["metadata"]["name"].rsplit("-", 2)[0]
    await kube.delete(DEPLOYMENTS, stand.namespace, name, propagation="Orphan")

    async def has_adopted() -> bool:
        found, _ = await kube.list(DEPLOYMENTS, stand.namespace)
        status = {} if not found else found[0].get("status", {})
        is_new = bool(found) and found[0]["metadata"]["uid"] != first
        return is_new and status.get("readyReplicas") == 3

    await stand.until(has_adopted)
    await stand.step()
    assert {pod["metadata"]["uid"] for pod in await _engines(stand)} == engines
    assert await are_ready()


async def test_a_paused_deployment_goes_on(stand: Any, kube: Kube) -> None:
    await stand.create()
    await stand.until_phase("Stable")
    (found,), _ = await kube.list(DEPLOYMENTS, stand.namespace)
    key = DEPLOYMENTS, stand.namespace, found["metadata"]["name"]
    await kube.merge(*key, {"spec": {"paused": True, "replicas": 1}}, manager="kubectl")

    async def goes_on() -> bool:
        return not (await kube.get(*key))["spec"].get("paused", False)

    await stand.until(goes_on)
    live = await kube.get(*key)
    assert live["spec"]["replicas"] == 1
    await stand.step()
    assert (await kube.get(*key))["metadata"]["generation"] == live["metadata"]["generation"]


async def test_a_repair_keeps_a_scaling_that_came_before_it(stand: Any, kube: Kube) -> None:
    """The number that the plan has read is old by then."""
    await stand.create(scaling={"mode": "DryRun"})
    await stand.until_phase("Stable")
    (found,), _ = await kube.list(DEPLOYMENTS, stand.namespace)
    key = DEPLOYMENTS, stand.namespace, found["metadata"]["name"]
    await kube.merge(*key, {"spec": {"paused": True}}, manager="kubectl")
    applied: list[int] = []

    class Delayed(Kube):
        async def apply(self, body: Object, **kwargs: Any) -> Object:
            if body["kind"] == "Deployment":
                await kube.scale(*key, 3, manager="kubectl")
            live = await super().apply(body, **kwargs)
            if body["kind"] == "Deployment":
                applied.append(live["spec"]["replicas"])
            return live

    reconciler = stand.make_reconciler(Delayed(kube._api))
    with pytest.raises(Conflict):
        await reconciler.reconcile(stand.key)
    stand.reconciler = reconciler

    async def is_repaired() -> bool:
        return bool(applied)

    await stand.until(is_repaired)
    live = (await kube.get(*key))["spec"]
    assert (applied, live["replicas"], live.get("paused", False)) == ([3], 3, False)


async def test_a_service_that_a_finalizer_keeps_says_what_is_left_of_it(
    stand: Any, kube: Kube
) -> None:
    await stand.create()
    await stand.until_phase("Stable")
    hold = {"op": "add", "path": "/metadata/finalizers", "value": ["penstock.dev/test"]}
    await kube.patch(INFERENCE_SERVICES, *stand.key, [hold], manager="test")
    await kube.delete(INFERENCE_SERVICES, *stand.key)
    assert await stand.step() is None
    assert await stand.condition("Ready") == ("True", "Ready")
    assert await stand.condition("Reconciling") == ("True", "Terminating")
    (found,), _ = await kube.list(DEPLOYMENTS, stand.namespace)
    await kube.delete(DEPLOYMENTS, stand.namespace, found["metadata"]["name"])

    async def are_gone() -> bool:
        return not await _engines(stand)

    await stand.until(are_gone)
    await stand.step()
    assert await stand.condition("Ready") == ("False", "Terminating")
    status = await stand.status()
    assert (status["replicas"], status["readyReplicas"]) == (0, 0)
    (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
    assert ready["message"].endswith("finalizers that keep it: penstock.dev/test")
    assert await stand.deployment_uids() == set()
    release = {"op": "remove", "path": "/metadata/finalizers"}
    await kube.patch(INFERENCE_SERVICES, *stand.key, [release], manager="test")


async def _engines(stand: Any) -> list[Object]:
    return [
        pod
        for pod in await stand.pods()
        if pod["metadata"]["labels"][ROLE_LABEL] == SERVE
        and "deletionTimestamp" not in pod["metadata"]
    ]


async def _collect_garbage(kube: Kube, namespace: str, owner_uid: str) -> None:
    """Delete an owner's children. Kubernetes' collector may take minutes for a kind new to it."""
    for resource in set(KINDS.values()):
        if not resource.namespaced:
            continue
        for child in (await kube.list(resource, namespace))[0]:
            owners = child["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == owner_uid for owner in owners):
                await kube.delete(
                    resource, namespace, child["metadata"]["name"], uid=child["metadata"]["uid"]
                )


async def _is_there(kube: Kube, key: tuple[str, str]) -> bool:
    try:
        await kube.get(INFERENCE_SERVICES, *key)
    except NotFound:
        return False
    return True


async def test_an_orphan_is_adopted(stand: Any, kube: Kube) -> None:
    """A service deleted with --cascade=orphan and created again takes over pods and revisions."""
    await stand.create()
    await stand.until_phase("Stable")
    await stand.change(engine={"seed": 1})
    await stand.until_phase("Replacing")
    await stand.until_phase("Stable")
    for _ in range(3):
        await stand.step()
    (first,), _ = await kube.list(DEPLOYMENTS, stand.namespace)
    await kube.delete(INFERENCE_SERVICES, *stand.key, propagation="Orphan")
    # The garbage collector first removes the owner references; it runs every half minute.
    async with asyncio.timeout(90):
        while await _is_there(kube, stand.key):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await stand.create(engine={"seed": 1})
    await stand.until_phase("Stable")
    assert await stand.deployment_uids() == {first["metadata"]["uid"]}
    revisions, _ = await kube.list(CONTROLLER_REVISIONS, stand.namespace)
    assert len(revisions) == 2
    assert {owner_uid(each) for each in revisions} == {(await stand.body())["metadata"]["uid"]}


async def test_a_delayed_status_write_does_not_undo_a_newer_one(stand: Any, kube: Kube) -> None:
    """A former leader's delayed status write is refused after a newer leader's write."""
    await stand.create()
    held, go = asyncio.Event(), asyncio.Event()

    class Late(Kube):
        async def merge(self, *args: Any, **kwargs: Any) -> Object:
            held.set()
            await go.wait()
            return await super().merge(*args, **kwargs)

    late = stand.make_reconciler(Late(kube._api))
    call = asyncio.create_task(late.reconcile(stand.key))
    await held.wait()
    await stand.until_phase("Stable")
    go.set()
    assert await call == 0.0  # reconciled again at once
    assert (await stand.status())["rollout"]["phase"] == "Stable"


async def test_a_service_whose_deletion_no_watch_reported_is_reported_gone(stand: Any) -> None:
    stand.services[stand.key] = {"metadata": {}}
    assert await stand.step() is None
    assert stand.gone == [stand.key]


async def test_a_service_recreated_meanwhile_is_not_reported_gone(stand: Any, kube: Kube) -> None:
    class Slow(Kube):
        async def get(self, *args: Any, **kwargs: Any) -> Object:
            try:
                return await super().get(*args, **kwargs)
            finally:
                stand.services[stand.key] = {"metadata": {}}

    stand.services[stand.key] = {"metadata": {}}
    assert await stand.make_reconciler(Slow(kube._api)).reconcile(stand.key) is None
    assert stand.gone == []


async def test_already_exists_is_distinguished_from_a_conflict(kube: Kube, namespace: str) -> None:
    """After AlreadyExists the object exists; after a Conflict, as from a contended quota, it does not."""
    body: Object = {"metadata": {"name": "x"}, "data": {}}
    made = await kube.create(CONFIG_MAPS, namespace, body)
    with pytest.raises(AlreadyExists):
        await kube.create(CONFIG_MAPS, namespace, body)
    await kube.merge(CONFIG_MAPS, namespace, "x", {"data": {"a": "b"}}, manager="test")
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict) as conflict:
        await kube.merge(CONFIG_MAPS, namespace, "x", stale, manager="test")
    assert not isinstance(conflict.value, AlreadyExists)


async def test_a_conflict_on_a_pod_is_raised_for_a_retry(stand: Any, kube: Kube) -> None:
    class Contended(Kube):
        async def create(self, *args: Any, **kwargs: Any) -> Object:
            raise Conflict("the quota has been modified")

    await stand.create()
    reconciler = stand.make_reconciler(Contended(kube._api))
    await reconciler.reconcile(stand.key)
    with pytest.raises(Conflict):
        await reconciler.reconcile(stand.key)
