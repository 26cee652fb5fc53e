"""Whole objects of the API server, with all of their fields and with none that may be absent."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.observed.children import (
    ObservedDeployment,
    ObservedJob,
    ObservedState,
    owner_uid,
)
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import PreflightResult, preflight_result
from penstock.core.spec.service import (
    COHORT_LABEL,
    CONTROL,
    REVISION_LABEL,
    ROLE_LABEL,
    TEMPLATE_HASH,
    VARIANT_LABEL,
)

MADE, READY = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
BARE: dict[str, Any] = {"name": "n", "uid": "u", "creationTimestamp": MADE}
LABELS = {REVISION_LABEL: "r", ROLE_LABEL: "serve", COHORT_LABEL: CONTROL, VARIANT_LABEL: "spot"}
FULL = BARE | {"labels": LABELS, "deletionTimestamp": READY}
POD = ObservedPod(
    "n", "u", "", "", "", False, False, "Pending", None, "", created_at=MADE
)  # fmt: skip


def terminated(**said: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": 1, **said}}


def ready_condition(status: str) -> dict[str, Any]:
    return {"type": "Ready", "status": status, "lastTransitionTime": READY}


def engine(**said: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "side", "restartCount": 9}, {"name": "engine", **said}]}


KILLED = (
    "OOMKilled",
    "the engine's container was killed for lack of memory: set spec.resources.limits.memory",
)
OOM, ERROR = terminated(reason="OOMKilled", message="m"), terminated(reason="Error")


@pytest.mark.parametrize(
    ("metadata", "status", "expected"),
    [
        (BARE, {}, {}),
        (
            FULL,
            {"podIP": "10.0.0.1", "phase": "Running", "conditions": [ready_condition("True")]},
            {
                "revision": "r", "role": "serve", "cohort": CONTROL, "variant": "spot",
                "is_ending": True, "address": "10.0.0.1", "phase": "Running", "is_ready": True,
                "ready_at": READY,
            },
        ),
        (BARE, {"conditions": [ready_condition("False")]}, {"unready_at": READY}),
        (BARE, engine(state=OOM, restartCount=2),
         {"termination_message": "m", "restarts": 2, "is_out_of_memory": True, "trouble": KILLED}),
        (BARE, engine(state={"running": {}}, lastState=OOM),
         {"termination_message": "m", "is_out_of_memory": True, "trouble": KILLED}),
        # How it ended now counts before how it did the last time.
        (BARE, engine(state=ERROR, lastState=OOM), {"termination_message": "m"}),
        (BARE, engine(state=OOM, lastState=ERROR),
         {"termination_message": "m", "is_out_of_memory": True, "trouble": KILLED}),
        (
            BARE,
            {"containerStatuses": [{"name": "evaluation", "state": terminated(message="12 of 40")}]},
            {"termination_message": "12 of 40"},
        ),
    ],
)  # fmt: skip
def test_a_pod(metadata: Any, status: Any, expected: dict[str, Any]) -> None:
    assert ObservedPod.of({"metadata": metadata, "status": status}) == replace(POD, **expected)
    assert ObservedPod.of({"metadata": BARE}) == POD


def test_a_pod_has_its_first_owner() -> None:
    owners = [{"uid": "o1"}, {"uid": "o2"}]
    assert ObservedPod.of({"metadata": BARE | {"ownerReferences": owners}}).owner == "o1"


@pytest.mark.parametrize(
    ("status", "lost"),
    [
        ({"phase": "Running", "reason": "Evicted"}, ""),
        ({"reason": "Evicted", "message": "m"}, "Evicted: m"),
        ({"reason": "Evicted", "message": "m "}, "Evicted: m"),
        ({"reason": "Evicted"}, "Evicted"),
        ({"reason": "DeadlineExceeded", "message": "m"}, ""),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, ": "),
        (
            {"conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "R", "message": "m"}
            ]},
            "R: m",
        ),
        (engine(state=terminated()), ""),
        (engine(state=terminated(reason="Unknown", message="m")), "Unknown: m"),
        (
            engine(state=terminated(reason="ContainerStatusUnknown")),
            "ContainerStatusUnknown: the end of its container was not observed",
        ),
        ({"reason": "DeadlineExceeded", **engine(state=terminated(reason="Unknown"))},
         "Unknown: the end of its container was not observed"),
        (engine(state={"waiting": {}}), "its container never ended"),
        ({}, "its container never ended"),
    ],
)  # fmt: skip
def test_why_a_node_gave_a_pod_up(status: Any, lost: str) -> None:
    read = ObservedPod.of({"metadata": BARE, "status": {"phase": "Failed", **status}})
    assert read.lost == lost


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"metadata": BARE, "spec": {}},
            ObservedDeployment("n", "u", "", 1, 0, False, {}, created_at=MADE),
        ),
        (
            {
                "metadata": FULL | {"annotations": {TEMPLATE_HASH: "h"}},
                "spec": {"replicas": 3},
                "status": {"readyReplicas": 2},
            },
            ObservedDeployment(
                "n", "u", "r", 3, 2, True, {}, None, CONTROL, "spot", created_at=MADE
            ),
        ),
    ],
)
def test_a_deployment(body: Any, expected: ObservedDeployment) -> None:
    read = ObservedDeployment.of(body)
    assert read == replace(expected, body=body)
    assert read.template_hash == ("h" if "annotations" in body["metadata"] else "")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"metadata": BARE}, ObservedJob("n", "u", "", "Running")),
        (
            {
                "metadata": FULL,
                "status": {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]},
            },
            ObservedJob("n", "u", "r", "Failed", "m", is_ending=True),
        ),
        (
            {
                "metadata": BARE,
                "status": {
                    "conditions": [
                        {"type": "Failed", "status": "True"},
                        {"type": "Complete", "status": "True"},
                    ]
                },
            },
            ObservedJob("n", "u", "", "Failed"),
        ),
    ],
)
def test_a_job(body: Any, expected: ObservedJob) -> None:
    assert ObservedJob.of(body) == expected


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        (None, None),
        ([], None),
        ([{"uid": "a"}, {"uid": "b", "controller": False}], None),
        ([{"uid": "a"}, {"uid": "b", "controller": True}], "b"),
    ],
)
def test_the_controlling_owner(owners: Any, uid: str | None) -> None:
    metadata = BARE if owners is None else BARE | {"ownerReferences": owners}
    assert owner_uid({"metadata": metadata}) == uid


FIRST = ObservedJob("j", "u1", "r1", "Failed")


@pytest.mark.parametrize(
    ("jobs", "uid"),
    [
        ((), None),
        ((FIRST,), None),
        ((FIRST, replace(FIRST, revision="r2", uid="u2", is_ending=True)), None),
        ((FIRST, replace(FIRST, revision="r2", uid="u2")), "u2"),
    ],
)
def test_the_evaluation_of_a_revision(jobs: tuple[ObservedJob, ...], uid: str | None) -> None:
    found = ObservedState(jobs=jobs).evaluation("r2")
    assert (found and found.uid) == uid


LONG = "".join(f"{n:04}" for n in range(200))


@pytest.mark.parametrize(
    ("pods", "reason", "report"),
    [
        ((), "", "it has no termination message"),
        ((), "deadline exceeded", "deadline exceeded"),
        ((("u1", ""), ("u0", "of another")), "", "it has no termination message"),
        ((("u0", "of another"), ("u1", ""), ("u1", "wrong"), ("u1", "later")), "late", "wrong"),
        ((("u1", LONG),), "", LONG[-500:]),
    ],
)
def test_the_report_of_an_evaluation(
    pods: tuple[tuple[str, str], ...], reason: str, report: str
) -> None:
    made = tuple(replace(POD, owner=owner, termination_message=said) for owner, said in pods)
    assert ObservedState(pods=made).report(replace(FIRST, reason=reason)) == report


def test_the_preflight_of_a_revision_is_one_that_does_not_go() -> None:
    one = replace(POD, revision="r1", role="preflight")
    others = (
        replace(one, role="serve"),
        replace(one, revision="r2"),
        replace(one, is_ending=True),
    )
    assert ObservedState(pods=(*others, one)).preflight("r1") is one
    assert ObservedState(pods=others).preflight("r1") is None


def test_the_deployments_of_a_side_are_found_by_variant() -> None:
    one = ObservedDeployment("b", "b", "r1", 2, 0, False, {}, variant="spot")
    two = replace(one, name="a", replicas=3, variant="plain")
    control = replace(one, name="c", cohort=CONTROL, replicas=5)
    observed = ObservedState((one, two, control, replace(one, revision="r2")))
    assert observed.deployments_of("r1") == {"spot": one, "plain": two}
    assert observed.deployments_of("r1", CONTROL) == {"spot": control}
    assert (observed.replicas("r1"), observed.replicas("r1", CONTROL)) == (5, 5)
    assert observed.deployment("r1") is two
    assert (observed.deployment("r3"), observed.replicas("r3")) == (None, 0)


@pytest.mark.parametrize(
    ("phase", "said", "expected"),
    [
        ("Pending", "", None),
        ("Running", "", None),
        ("Succeeded", "", PreflightResult(True, "Passed", "the preflight passed")),
        ("Failed", "", PreflightResult(False, "PreflightFailed", "the preflight failed")),
        ("Failed", "killed", PreflightResult(False, "PreflightFailed", "killed")),
        ("Failed", LONG, PreflightResult(False, "PreflightFailed", LONG[-500:])),
        (
            "Failed", '{"ok": false, "reason": "R", "message": "m"}', PreflightResult(False, "R", "m"),
        ),
        (
            "Succeeded",
            '{"ok": true, "architecture": "Q", "weights_bytes": 2097152, "kv_capacity_tokens": 9}',
            PreflightResult(True, "Fits", "Q, 2 MiB of weights, 9 tokens of KV cache"),
        ),
        (
            "Succeeded",
            '{"ok": true, "architecture": "Q", "weights_bytes": 2097152, "kv_capacity_tokens": 9, '
            '"accelerator_memory_bytes": 4194304}',
            PreflightResult(
                True, "Fits",
                "Q, 2 MiB of weights on each accelerator of 4 MiB, 9 tokens of KV cache",
            ),
        ),
        (
            "Succeeded",
            '{"ok": true, "architecture": "Q", "weights_bytes": 2097152, "kv_capacity_tokens": null, '
            '"accelerator_memory_bytes": null}',
            PreflightResult(
                True, "Fits",
                "Q, 2 MiB of weights on each accelerator, whose memory is unknown, so it was not "
                "checked whether they fit",
            ),
        ),
    ],
)  # fmt: skip
def test_what_a_preflight_found(phase: str, said: str, expected: PreflightResult | None) -> None:
    assert preflight_result(replace(POD, phase=phase, termination_message=said)) == expected


def test_a_preflight_without_memory_is_named_as_such() -> None:
    killed = replace(POD, phase="Failed", termination_message="log", is_out_of_memory=True)
    expected = PreflightResult(
        False, "PreflightFailed", "the preflight was killed for lack of memory"
    )
    assert preflight_result(killed) == expected
