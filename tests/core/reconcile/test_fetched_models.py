"""A service whose model is fetched: its engines fetch what its preflight found, and its status says so."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.one_revision import NOW_S, observed_in, pod
from tests.core.reconcile.one_revision import preflight as preflight_of
from tests.support.specs.service_spec import SMALL, service_spec

from penstock.core.formats.timestamps import timestamp
from penstock.core.manifests import engine as manifests
from penstock.core.manifests.model_fetch import uris_of
from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.fetches import FetchProgress, PodFetches
from penstock.core.observed.pods import ObservedPod
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.model_status import model_status
from penstock.core.reconcile.plan import Plan, plan
from penstock.core.reconcile.plan_steps import SOURCE_RETRY_S
from penstock.core.spec.history import PODS_ANNOTATION, PinnedPods, Revision
from penstock.core.spec.revision import revision_of

URI, COMMIT = "hf://org/model", "a" * 40
RESOLVED = f"{URI}@{COMMIT}"
SPEC = service_spec(uid="u1", model_uri=URI, scaling=replace(SMALL.scaling, max_replicas=3))
REVISION = revision_of(SPEC)
PODS = manifests.own_pods(SPEC, REVISION, "image")


def found(commit: str = COMMIT) -> str:
    source = {"uri": URI, "resolved_uri": f"{URI}@{commit}", "total_bytes": 1000}
    return json.dumps(
        {"ok": True, "reason": "Found", "message": "it is there", "sources": [source]}
    )


BUSY = json.dumps(
    {
        "ok": False, "reason": "RateLimited", "message": "the hub is busy", "remedies": {},
        "is_retryable": True, "uri": URI,
    }
)  # fmt: skip
GATED = json.dumps(
    {
        "ok": False, "reason": "GatedModel", "message": "it is gated: accept its terms", "remedies": {},
        "is_retryable": False, "uri": URI,
    }
)  # fmt: skip


def preflight(said: str, phase: str = "Succeeded") -> ObservedPod:
    return replace(preflight_of(said, phase, REVISION), created_at=timestamp(NOW_S), service="chat")


def observed(*children: Any, pods: PinnedPods | None = PODS, **rest: Any) -> ObservedState:
    known = (Revision(f"chat-{REVISION}", "r", REVISION, 1, {}, pods),) if pods else ()
    state = observed_in(*children, **rest)
    assert state.rollout is not None
    rollout = replace(state.rollout, revision=REVISION if state.rollout.revision else None)
    return replace(state, history=known, rollout=rollout)


def planned(state: ObservedState, after_s: float = 1) -> Plan:
    return plan(SPEC, state, "image", NOW_S + after_s)


def condition(state: ObservedState, kind: str) -> tuple[str, str, str]:
    each = next(c for c in conditions(SPEC, state, planned(state), None) if c.type == kind)
    return each.status, each.reason, each.message


def test_the_resolved_revision_is_recorded_before_engines_are_created() -> None:
    made = planned(observed(preflight(found())))
    assert [body["kind"] for body in made.apply] == ["ControllerRevision", "Deployment"]
    record, deployment = made.apply
    recorded = PinnedPods.of(record["metadata"]["annotations"][PODS_ANNOTATION])
    assert recorded is not None
    assert uris_of(recorded.serve) == {"fetch-model": RESOLVED}
    assert uris_of(deployment["spec"]["template"]) == {"fetch-model": RESOLVED}
    assert recorded.preflight == PODS.preflight


def test_a_moved_tag_changes_nothing_of_a_revision() -> None:
    first = planned(observed(preflight(found())))
    recorded = PinnedPods.of(first.apply[0]["metadata"]["annotations"][PODS_ANNOTATION])
    assert recorded is not None
    body = first.apply[1]
    deployment = ObservedDeployment(body["metadata"]["name"], "d", REVISION, 1, 0, False, body)
    for said in (found("b" * 40), None):
        pods = (preflight(said),) if said else ()
        assert planned(observed(deployment, *pods, pods=recorded)).apply == ()


def test_the_status_has_what_was_resolved() -> None:
    assert model_status(observed(), REVISION) is None
    first = planned(observed(preflight(found())))
    recorded = PinnedPods.of(first.apply[0]["metadata"]["annotations"][PODS_ANNOTATION])
    assert model_status(observed(pods=recorded), REVISION) == {
        "resolvedURI": RESOLVED,
        "draftResolvedURI": None,
    }
    assert model_status(observed(pods=recorded), "other") is None


def test_a_source_that_does_not_answer_is_asked_again_later() -> None:
    state = observed(preflight(BUSY, "Failed"))
    early = planned(state)
    assert (early.is_empty, early.wake_s) == (True, SOURCE_RETRY_S - 1)
    assert condition(state, "ModelReady") == (
        "Unknown", "RateLimited", "the hub is busy; it is tried again",
    )  # fmt: skip
    assert condition(state, "Stalled")[0] == "False"
    due = planned(state, SOURCE_RETRY_S)
    assert [deletion.kind for deletion in due.delete] == ["Pod"]
    assert due.rollout.phase == "Starting"


def test_a_gated_model_stalls_the_rollout() -> None:
    state = observed(preflight(GATED, "Failed"))
    assert condition(state, "ModelReady") == (
        "False", "GatedModel",
        "it is gated: accept its terms; change the URI, or correct the source or the Secret of "
        "spec.model.secretRef and run: kubectl penstock rollout restart chat",
    )  # fmt: skip
    assert condition(state, "Stalled")[:2] == ("True", "GatedModel")


def engines(*pods: ObservedPod) -> ObservedState:
    body = manifests.deployment(SPEC, REVISION, PODS)
    deployment = ObservedDeployment(
        body["metadata"]["name"], "d", REVISION, len(pods), 0, False, body
    )
    return observed(deployment, *pods)


def test_the_condition_says_how_far_a_fetch_is() -> None:
    progress = FetchProgress(3 << 30, 14 << 30, 210 << 20)
    fetches = PodFetches(running="fetch-model", since=timestamp(NOW_S), progress=progress)
    waiting = replace(pod("a", REVISION, ready=False), fetches=fetches)
    assert condition(engines(waiting), "WorkloadReady") == (
        "False", "Fetching",
        "0 of 1 engines are ready; a fetches its model: 3.0 of 14.0 GiB, 210 MiB/s, 54 s left",
    )  # fmt: skip


def test_a_fetch_that_failed_is_the_trouble_of_the_workload() -> None:
    broken = replace(
        pod("a", REVISION, ready=False),
        trouble=("NoSpace", "the volume is full"),
        fetches=PodFetches(failure=("NoSpace", "the volume is full"), is_final=True, restarts=1),
    )
    assert condition(engines(broken), "WorkloadReady") == (
        "False", "NoSpace",
        "the volume is full; the pod tries it again by itself, after pauses of at most five minutes",
    )  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        "[]", "null", "1", '"x"', '{"ok": false, "reason": [1], "message": "m"}',
        '{"ok": false, "reason": "R", "message": {}, "remedies": {}}',
    ],
)  # fmt: skip
def test_a_verdict_that_no_engine_writes_is_a_failure(said: str) -> None:
    """The pod's container may be anybody's."""
    state = observed(preflight(said, "Failed"))
    status, reason, message = condition(state, "ModelReady")
    assert (status, reason) == ("False", "PreflightFailed")
    assert message == said


@pytest.mark.parametrize(
    ("resolved_uri", "total_bytes"),
    [
        (RESOLVED, -1), (RESOLVED, 10**400), (RESOLVED, float("inf")), (RESOLVED, "1"), (URI, 1),
        ("--port=1", 1), ("file:///etc", 1), (f"oci://a/b@sha256:{'a' * 64}", 1), (None, 1),
    ],
)  # fmt: skip
def test_only_a_revision_of_the_source_is_recorded(resolved_uri: Any, total_bytes: Any) -> None:
    source = {"uri": URI, "resolved_uri": resolved_uri, "total_bytes": total_bytes}
    said = {"ok": True, "reason": "Found", "message": "there", "sources": [source]}
    made = planned(observed(preflight(json.dumps(said))))
    uris = [
        uris_of(body["spec"]["template"]) for body in made.apply if body["kind"] == "Deployment"
    ]
    assert uris == [{"fetch-model": URI}]
