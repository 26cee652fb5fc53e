"""Adapters of hubs, stores and registries: fetched by a pod, then rolled out, at a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.cluster.adapter_stand import AdapterStand, adapter_stand, engine_name

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer
from penstock.clients.kubernetes.resources import EVENTS, LORA_ADAPTERS, PODS
from penstock.controller.adapters import fetch_mounts, fetches
from penstock.controller.adapters.metrics import AdapterMetrics
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.observed import mount_failures
from penstock.core.spec.service import ADAPTER_FETCH, ROLE_LABEL

pytestmark = pytest.mark.cluster

V1, V2 = "hf://org/sql@v1", "hf://org/sql@v2"
CACHE = {"claimName": "cache"}
GATED = {"ok": False, "reason": "GatedModel", "message": "org/sql is gated", "is_retryable": False}


def fetched(uri: str) -> Object:
    """The report of a fetch."""
    return {
        "ok": True, "resolved_uri": f"{uri}-commit", "total_bytes": 3, "downloaded_bytes": 3,
        "seconds": 1.0, "num_cache_hits": 0,
    }  # fmt: skip


def counted(stand: AdapterStand) -> dict[str, float]:
    """The metrics of fetches for the service, by name and reason."""
    assert stand.placer is not None
    samples = [each for family in AdapterMetrics(stand.placer).collect() for each in family.samples]
    service = "/".join(stand.key)
    return {
        f"{each.name} {each.labels.get('reason', '')}".rstrip(): each.value
        for each in samples
        if "adapter_fetch" in each.name and each.labels["service"] == service
    }


def revision(uri: str) -> str:
    return AdapterVersion("sql", uri).revision


@pytest.fixture
async def stand(kube: Kube, namespace: str) -> AsyncIterator[AdapterStand]:
    """A stand whose service has a cache, with a spec that the operator has accepted."""
    async with adapter_stand(kube, namespace) as made:
        set_service(made, cache=CACHE)
        made.fetch_pods = pods = Informer(
            kube, PODS, namespace=namespace, selector=f"{ROLE_LABEL}={ADAPTER_FETCH}",
            changed=lambda _: None,
        )  # fmt: skip
        watching = asyncio.create_task(pods.run())
        await pods.synced.wait()
        yield made
        watching.cancel()


def set_service(stand: AdapterStand, template: Object | None = None, **model: Any) -> None:
    """Give the service a model with these fields and a template, and an accepted spec."""
    accepted = {
        "type": "SpecValid", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1,
    }  # fmt: skip
    body = stand.service(model={"uri": "pvc://models", **model}, template=template or {})
    stand.services = {stand.key: body | {"status": {"conditions": [accepted]}}}


async def pods(
    stand: AdapterStand, holds: Callable[[list[Object]], bool] = lambda found: len(found) == 1
) -> list[Object]:
    """Wait until the fetch pods at the API server are as wanted. Returns them."""
    found: list[Object] = []
    for _ in range(300):
        found, _ = await stand.kube.list(PODS, stand.namespace)
        found = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        if holds(found):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError([each["metadata"]["name"] for each in found])


async def until_message(stand: AdapterStand, text: str) -> None:
    """Wait for a condition of the adapter whose message has a text."""
    messages: set[str] = set()
    for _ in range(300):
        status = (await stand.get("sql")).get("status", {})
        messages = {each["message"] for each in status.get("conditions", [])}
        if any(text in each for each in messages):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(messages)


async def report_end(stand: AdapterStand, pod: Object, exit_code: int, report: Object) -> None:
    """Report the end of a pod, as a kubelet does."""
    ended = {
        "exitCode": exit_code, "message": json.dumps(report),
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z",
    }  # fmt: skip
    container = {
        "name": "engine", "image": "engine:1", "imageID": "", "ready": False, "restartCount": 0,
        "state": {"terminated": ended},
    }  # fmt: skip
    phase = "Failed" if exit_code else "Succeeded"
    patch = {"status": {"phase": phase, "containerStatuses": [container]}}
    name = pod["metadata"]["name"]
    await stand.kube.merge(PODS, stand.namespace, name, patch, manager="kubelet", sub="status")


async def end_fetch(stand: AdapterStand, uri: str) -> None:
    """Wait for the pod that fetches a version, and let it succeed."""
    label = "serving.penstock.dev/revision"
    (pod,) = await pods(
        stand,
        lambda found: [each["metadata"]["labels"][label] for each in found] == [revision(uri)],
    )
    await report_end(stand, pod, 0, fetched(uri))


async def test_an_adapter_is_fetched_once_and_then_loaded_by_all_engines(
    stand: AdapterStand,
) -> None:
    engines = [await stand.add_engine(f"chat-{end}", cache="cache") for end in "ab"]
    await stand.create("sql", placement={"policy": "All"}, model={"uri": V1})
    await stand.until("sql", Resolved="Fetching", Reconciling="Fetching", Ready="Fetching")
    (pod,) = await pods(stand)
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("LoraAdapter", "sql")
    await stand.passes()
    assert [each.calls for each in engines] == [[], []]
    assert "versions" not in (await stand.get("sql"))["status"]

    await end_fetch(stand, V1)
    status = await stand.until("sql", Loaded="AllLoaded", Ready="Ready", Reconciling="Settled")
    path = f"/adapters/cache/adapters/sql/{revision(V1)}"
    name = engine_name("sql", V1)
    assert [each.entries[name]["path"] for each in engines] == [path, path]
    assert status["fetchedVersions"] == [
        {"revision": revision(V1), "claimName": "cache", "resolvedURI": f"{V1}-commit"}
    ]
    await pods(stand, lambda found: found == [])
    assert counted(stand) == {
        "penstock_operator_adapter_fetches_total Fetched": 1,
        "penstock_operator_adapter_fetch_downloaded_bytes_total": 3,
        "penstock_operator_adapter_fetch_seconds_total": 1.0,
        "penstock_operator_adapter_fetch_cached_files_total": 0,
    }
    version = await stand.version("sql")
    await stand.start_placer()  # a new leader
    await stand.passes()
    assert await stand.version("sql") == version
    assert await pods(stand, lambda _: True) == []


async def test_the_version_that_serves_goes_on_until_the_next_one_is_fetched(
    stand: AdapterStand,
) -> None:
    engine = await stand.add_engine("chat-a", cache="cache")
    await stand.create("sql", placement={"policy": "All"}, model={"uri": V1})
    await end_fetch(stand, V1)
    await stand.until("sql", Loaded="AllLoaded", RolledOut="Stable")
    await pods(stand, lambda found: found == [])
    await stand.change("sql", model={"uri": V2})
    status = await stand.until("sql", RolledOut="Fetching", Ready="Ready", Resolved="Resolved")
    assert status["traffic"][0]["uri"] == V1
    (pod,) = await pods(stand)
    assert f"--keep={revision(V1)}" in pod["spec"]["containers"][0]["args"]
    await stand.passes()
    assert engine.entries.keys() == {engine_name("sql", V1)}
    await end_fetch(stand, V2)
    await stand.until_true(lambda: engine.entries.keys() == {engine_name("sql", V2)})
    await stand.until("sql", RolledOut="Stable")

    await pods(stand, lambda found: found == [])
    await stand.change("sql", model={"uri": V1})  # in the history, and fetched
    await stand.until_true(lambda: engine.entries.keys() == {engine_name("sql", V1)})
    assert await pods(stand, lambda _: True) == []


async def test_a_source_that_refuses_is_the_reason_until_the_spec_changes(
    stand: AdapterStand,
) -> None:
    await stand.add_engine("chat-a", cache="cache")
    await stand.create("sql", placement={"policy": "All"}, model={"uri": V1})
    (pod,) = await pods(stand)
    await report_end(stand, pod, 1, GATED)
    await stand.until("sql", Resolved="GatedModel", Stalled="GatedModel", Ready="GatedModel")
    await stand.until_event("sql", "Warning", "GatedModel")
    await stand.passes()
    assert counted(stand)["penstock_operator_adapter_fetches_total GatedModel"] == 1
    assert (await pods(stand))[0]["metadata"]["uid"] == pod["metadata"]["uid"]
    await stand.change("sql", model={"secretRef": {"name": "hub"}})
    await pods(
        stand,
        lambda found: (
            [each["metadata"]["name"] for each in found] not in ([], [pod["metadata"]["name"]])
        ),
    )
    await end_fetch(stand, V1)
    await stand.until("sql", Resolved="Resolved", Stalled="NotStalled", Loaded="AllLoaded")


async def test_another_cache_gets_the_version_while_it_serves(stand: AdapterStand) -> None:
    await stand.add_engine("chat-a", cache="cache")
    await stand.create("sql", placement={"policy": "All"}, model={"uri": V1})
    await end_fetch(stand, V1)
    await stand.until("sql", Loaded="AllLoaded")
    await pods(stand, lambda found: found == [])
    set_service(stand, cache={"claimName": "other"})
    await stand.until("sql", Ready="Ready", RolledOut="Fetching")
    await end_fetch(stand, V1)
    status = await stand.until("sql", Ready="Ready", RolledOut="Stable")
    assert [each["claimName"] for each in status["fetchedVersions"]] == ["other"]


async def test_a_version_waits_for_engines_that_mount_the_cache(stand: AdapterStand) -> None:
    """An engine without it would refuse the version, which would be rejected."""
    old = await stand.add_engine("chat-a")
    await stand.create("sql", placement={"policy": "All"})
    await stand.until("sql", Loaded="AllLoaded")
    await stand.change("sql", model={"uri": V1})
    await end_fetch(stand, V1)
    await pods(stand, lambda found: found == [])
    await until_message(stand, "engines do not mount the claim cache yet, such as chat-a")
    await stand.until("sql", RolledOut="Fetching", Ready="Ready")
    new = await stand.add_engine("chat-b", cache="cache")
    await stand.until_true(lambda: engine_name("sql") in new.entries)
    await stand.passes()
    del stand.pods["chat-a"]
    await stand.until_true(lambda: new.entries.keys() == {engine_name("sql", V1)})
    assert ("load", engine_name("sql", V1)) not in old.calls


async def test_an_adapter_of_a_service_without_a_cache_is_not_accepted(stand: AdapterStand) -> None:
    set_service(stand)
    await stand.create("sql", model={"uri": V1})
    await stand.until("sql", Accepted="CacheRequired", Stalled="CacheRequired")
    await stand.passes()
    assert await pods(stand, lambda _: True) == []


async def test_pods_are_made_only_by_a_spec_that_the_operator_has_accepted(
    stand: AdapterStand,
) -> None:
    """Its template has been checked against the operator's limits."""
    body = stand.services[stand.key]
    stand.services = {stand.key: body | {"status": {}}}
    await stand.create("sql", model={"uri": V1})
    await stand.until("sql", Resolved="Fetching")
    await stand.passes()
    assert await pods(stand, lambda _: True) == []
    stand.services = {stand.key: body}
    await pods(stand)


async def test_a_secret_that_cannot_be_mounted_is_named(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mount_failures, fetch_mounts):
        monkeypatch.setattr(module, "EVENTS_AFTER_S", 0.0)
    template = {"spec": {"schedulerName": "none"}}  # nobody else writes the pod's status
    set_service(stand, template, cache=CACHE)
    await stand.create("sql", model={"uri": V1, "secretRef": {"name": "hub"}})
    (pod,) = await pods(stand)
    metadata = pod["metadata"]
    scheduled = {"type": "PodScheduled", "status": "True"}
    waiting = {
        "name": "engine", "image": "engine:1", "imageID": "", "ready": False, "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
    }  # fmt: skip
    patch = {"status": {"conditions": [scheduled], "containerStatuses": [waiting]}}
    await stand.kube.merge(
        PODS, stand.namespace, metadata["name"], patch, manager="kubelet", sub="status"
    )
    about = {"kind": "Pod", "uid": metadata["uid"], "namespace": stand.namespace}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "mount"}, "type": "Warning",
        "involvedObject": {"name": metadata["name"], **about}, "reason": "FailedMount",
        "message": 'secret "hub" not found', "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    await stand.kube.create(EVENTS, stand.namespace, event)
    await until_message(stand, 'FailedMount: secret "hub" not found')
    await stand.until("sql", Resolved="Fetching", Stalled="NotStalled")


async def test_a_pod_that_the_api_server_refuses_is_tried_again(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "REFUSED_PAUSE_S", 1.0)
    set_service(stand, {"spec": {"priorityClassName": "nosuch"}}, cache=CACHE)
    await stand.create("sql", model={"uri": V1})
    await until_message(stand, "the API server refuses its pod: ")
    await until_message(stand, "nosuch")
    set_service(stand, cache=CACHE)
    await end_fetch(stand, V1)
    await stand.until("sql", Resolved="NotRead")


async def test_few_adapters_are_fetched_at_the_same_time(
    stand: AdapterStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "MAX_FETCHES", 1)
    await stand.create("sql", model={"uri": V1})
    await stand.create("code", model={"uri": V2})
    await stand.until("sql", Resolved="Fetching")
    await stand.until("code", Resolved="Fetching")
    await stand.passes()
    (first,) = await pods(stand)
    await report_end(stand, first, 0, fetched(V1))
    await pods(
        stand,
        lambda found: len(found) == 1 and found[0]["metadata"]["uid"] != first["metadata"]["uid"],
    )


async def test_pods_go_with_the_version_that_they_fetch(stand: AdapterStand) -> None:
    await stand.create("sql", model={"uri": V1})
    await pods(stand)
    await stand.change("sql", model={"uri": "pvc://adapters/sql"})
    await pods(stand, lambda found: found == [])
    await stand.kube.delete(LORA_ADAPTERS, stand.namespace, "sql")
