"""Planned fetches of an adapter, by its present pods and the record in its status."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.adapter_objects import SQL
from tests.support.specs.service_spec import service_spec

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.fetched import FetchedVersion
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.manifests.adapter_fetch import adapter_fetch_name
from penstock.core.observed.adapter_fetches import AdapterFetchPod
from penstock.core.reconcile.adapter_fetches import FetchInputs, FetchPlan, plan_fetches
from penstock.core.reconcile.adapter_state import FetchStep
from penstock.core.reconcile.plan_steps import LOST_RETRY_S, SOURCE_RETRY_S

CREATED = "2026-01-01T00:00:00Z"
NOW_S = parse_timestamp(CREATED) + 5.0
NEW = replace(SQL.version, uri="hf://org/sql@v2")
OLD = replace(SQL.version, uri="hf://org/sql@v1")
HUB = replace(SQL, version=NEW)
RESOLVED = f"hf://org/sql@{'a' * 40}"
SERVICE = replace(
    service_spec(), model_cache_claim="cache", settings={"engine.lora.maxAdapters": 4}
)
FETCHED = {
    "ok": True, "resolved_uri": RESOLVED, "total_bytes": 3, "downloaded_bytes": 3, "seconds": 1.0,
    "num_cache_hits": 0,
}  # fmt: skip
GATED = {"ok": False, "reason": "GatedModel", "message": "org/sql is gated", "is_retryable": False}
LIMITED = {"ok": False, "reason": "RateLimited", "message": "the hub is busy", "is_retryable": True}


def pod(phase: str = "Running", code: int | None = None, report: Any = None, **changes: Any) -> Any:
    version = changes.pop("version", NEW)
    name = adapter_fetch_name(HUB, version, changes.pop("claim", "cache"))
    ended = {"exitCode": code, "reason": "Error", "finishedAt": CREATED}
    message = {} if report is None else {"message": json.dumps(report)}
    state = {} if code is None else {"state": {"terminated": ended | message}}
    return AdapterFetchPod.of(
        {
            "metadata": {"name": name, "uid": "p", "creationTimestamp": CREATED} | changes,
            "status": {"phase": phase, "containerStatuses": [{"name": "engine", **state}]},
        }
    )


def plan(
    *pods: Any,
    needed: tuple[AdapterVersion, ...] = (NEW,),
    claim: str = "",
    num_free: int = 1,
    **more: Any,
) -> FetchPlan:
    """The plan. claim: of the cache that the status records for the needed versions; empty: none."""
    known = {each.revision: FetchedVersion(each.revision, claim, RESOLVED) for each in needed}
    inputs = FetchInputs(
        HUB, needed, known if claim else {}, (NEW.revision, OLD.revision), SERVICE, pods, "engine:1"
    )
    now_s = more.pop("now_s", NOW_S)
    return plan_fetches(replace(inputs, **more), num_free, now_s)


def test_a_version_that_the_cache_lacks_is_fetched_by_one_pod() -> None:
    made = plan()
    (body,) = made.create
    assert body["metadata"]["name"] == adapter_fetch_name(HUB, NEW, "cache")
    assert (made.delete, made.fetched, made.num_free) == ([], {}, 0)
    assert body["spec"]["containers"][0]["args"][1] == NEW.uri
    assert made.step == FetchStep("Fetching", "the fetch of hf://org/sql@v2 starts")
    refused = plan(refusal="quota").step
    assert refused is not None
    assert refused.message.endswith("the API server refuses its pod: quota")


def test_fetches_wait_for_each_other() -> None:
    made = plan(num_free=0)
    assert made.create == []
    assert made.step is not None
    assert (made.step.reason, made.step.is_final) == ("Fetching", False)
    both = plan(needed=(NEW, OLD), num_free=1)
    assert len(both.create) == 1


def test_a_pod_that_runs_is_waited_for() -> None:
    for each in (pod(), pod(deletionTimestamp=CREATED), pod("Pending")):
        made = plan(each)
        assert (made.create, made.delete) == ([], [])
        assert made.step is not None
        assert (made.step.reason, made.step.is_final) == ("Fetching", False)


def test_a_fetched_version_is_recorded_with_what_its_uri_meant() -> None:
    made = plan(pod("Succeeded", 0, FETCHED))
    assert made.fetched == {NEW.revision: FetchedVersion(NEW.revision, "cache", RESOLVED)}
    assert (made.create, made.delete) == ([], [])
    assert made.step is not None, "its rollout starts once the status has the record"
    without = plan(pod("Succeeded", 0))
    assert without.fetched[NEW.revision].resolved_uri == NEW.uri


def test_a_recorded_version_is_not_fetched_again_and_its_pod_goes() -> None:
    made = plan(pod("Succeeded", 0, FETCHED), claim="cache")
    assert (made.create, made.step) == ([], None)
    assert [(each.name, each.uid) for each in made.delete] == [
        (adapter_fetch_name(HUB, NEW, "cache"), "p")
    ]
    assert plan(pod(deletionTimestamp=CREATED), claim="cache").delete == []


def test_a_version_is_fetched_into_another_cache() -> None:
    made = plan(pod(claim="before"), claim="before")
    assert [each["metadata"]["name"] for each in made.create] == [
        adapter_fetch_name(HUB, NEW, "cache")
    ]
    assert [each.name for each in made.delete] == [adapter_fetch_name(HUB, NEW, "before")]
    assert made.fetched[NEW.revision].claim == "before", "until the fetch has ended"
    args = made.create[0]["spec"]["containers"][0]["args"]
    assert args[1] == RESOLVED, "the same files, also if the tag has moved"


def test_the_version_that_serves_is_fetched_without_a_step_of_its_own() -> None:
    made = plan(pod("Succeeded", 0, FETCHED), needed=(NEW, OLD))
    assert [each["metadata"]["name"] for each in made.create] == [
        adapter_fetch_name(HUB, OLD, "cache")
    ]
    assert made.step == FetchStep("Fetching", "hf://org/sql@v2 was fetched")


def test_a_final_failure_stays_until_something_is_changed() -> None:
    failed = pod("Failed", 1, GATED)
    made = plan(failed, now_s=NOW_S + 10 * SOURCE_RETRY_S)
    assert (made.create, made.delete) == ([], [])
    assert made.step is not None
    assert (made.step.reason, made.step.is_final) == ("GatedModel", True)
    assert made.step.message == (
        "org/sql is gated; change the URI, or correct the source or the Secret of spec.model.secretRef "
        f"and run: kubectl delete pod {failed.pod.name}"
    )


def test_a_pod_that_waits_for_its_secret_says_what_to_create() -> None:
    missing = 'MountVolume.SetUp failed for volume "model-secret" : secrets "hub" not found'
    waiting = pod("Pending")
    found = replace(waiting, pod=replace(waiting.pod, trouble=("FailedMount", missing)))
    assert plan(found).step == FetchStep(
        "Fetching",
        f"the pod {found.pod.name} fetches {NEW.uri}: FailedMount: {missing}; create what is missing, or "
        "change spec.model.secretRef",
    )


@pytest.mark.parametrize(
    ("failed", "reason", "pause_s"),
    [
        (pod("Failed", 75, LIMITED), "RateLimited", SOURCE_RETRY_S),
        (pod("Failed", 137), "Error", SOURCE_RETRY_S),
        (pod("Failed"), "FetchLost", LOST_RETRY_S),
    ],
)
def test_what_may_pass_is_tried_again_after_a_pause(
    failed: Any, reason: str, pause_s: float
) -> None:
    created_s = parse_timestamp(CREATED)
    inputs = FetchInputs(HUB, (NEW,), {}, (), SERVICE, (failed,), "engine:1")
    early = plan_fetches(inputs, 1, created_s + pause_s - 1)
    assert early.delete == []
    assert early.step is not None
    assert (early.step.reason, early.step.is_final) == (reason, False)
    assert early.step.message.endswith("the fetch is tried again")
    late = plan_fetches(inputs, 1, created_s + pause_s)
    assert [each.uid for each in late.delete] == ["p"]
    assert late.create == []
