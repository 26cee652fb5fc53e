"""Conditions and status of a plan."""

from dataclasses import replace
from functools import partial

import pytest
from tests.core.reconcile.one_revision import (
    FORBIDDEN,
    NOW_S,
    REFUSED,
    REVISION,
    SERVING,
    SPEC,
    deployment,
    observed_in,
    pod,
    preflight,
)

from penstock.api.schema.rollout_status import RolloutStatus
from penstock.core.observed.children import ObservedJob, ObservedState
from penstock.core.observed.rollout_phases import Phase
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.observed.stored_status import traffic_of
from penstock.core.reconcile import status as statuses
from penstock.core.reconcile.conditions import (
    conditions,
    explain_forbidden,
)
from penstock.core.reconcile.plan import plan
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.metric_gate import MetricGate
from penstock.core.spec.revision import revision_of

render = partial(statuses.render, gateway_url="http://gateway.example/v1")

REJECTED = Rejection("bad", "too slow", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("observed", "ready", "stalled"),
    [
        (observed_in(), ("False", "PreflightPending"), False),
        (observed_in(preflight(REFUSED, "Failed")), ("False", "ModelNotFound"), True),
        (
            observed_in(deployment(), preflight(), pod("a", ready=False)),
            ("False", "Progressing"),
            False,
        ),
        (SERVING, ("True", "Ready"), False),
        (observed_in(name_taken_by="older"), ("False", "ModelNameInUse"), True),
        (observed_in(refusals={REVISION: FORBIDDEN}), ("False", "PodForbidden"), True),
        (observed_in(preflight(), refusals={REVISION: FORBIDDEN}), ("False", "PodForbidden"), True),
        (
            observed_in(replace(deployment(), trouble=("FailedCreate", "a quota")), preflight()),
            ("False", "FailedCreate"),
            False,
        ),
        (
            replace(
                SERVING,
                deployments=(replace(deployment(replicas=2), trouble=("FailedCreate", "a quota")),),
            ),
            ("True", "Ready"),
            False,
        ),
    ],
)
def test_ready_says_the_first_cause(
    observed: ObservedState, ready: tuple[str, str], stalled: bool
) -> None:
    planned = plan(SPEC, observed, "image", NOW_S + 1)
    tree = {c.type: c for c in conditions(SPEC, observed, planned, None)}
    assert (tree["Ready"].status, tree["Ready"].reason) == ready
    assert (tree["Stalled"].status == "True") is stalled


def test_a_service_without_its_model_name_is_not_rolled_out() -> None:
    """Its revision is complete, but receives no traffic: tools that wait must not succeed."""
    taken = replace(SERVING, name_taken_by="older")
    found = {
        c.type: c for c in conditions(SPEC, taken, plan(SPEC, taken, "image", NOW_S + 1), None)
    }
    assert (found["RolledOut"].status, found["RolledOut"].reason) == ("False", "ModelNameInUse")
    assert found["RolledOut"].message == found["Stalled"].message


def test_a_rejected_revision_leaves_the_service_as_it_was_and_says_so() -> None:
    """Flux and Argo CD see a failure, clients an answer."""
    spec = replace(SPEC, settings={**SPEC.settings, "engine.seed": 1})
    state = RolloutState(
        "Canary", "Rejected", NOW_S, "gone", REVISION, None, 1,
        rejected=replace(REJECTED, revision=revision_of(spec)),
    )  # fmt: skip
    observed = replace(SERVING, rollout=state, stable_spec=SPEC)
    planned = plan(spec, observed, "image", NOW_S + 1)
    assert planned.is_empty
    tree = {c.type: c for c in conditions(spec, observed, planned, None)}
    assert tree["TrafficAvailable"].status == "True"
    assert [(tree[t].status, tree[t].reason) for t in ("RolledOut", "Stalled", "Ready")] == [
        ("False", "Rejected"),
        ("True", "Rejected"),
        ("True", "Ready"),
    ]
    assert "too slow" in tree["Stalled"].message


@pytest.mark.parametrize("phase", ["Draining", "Discarding"])
def test_an_edit_at_the_end_of_a_rollout_is_reconciled(phase: Phase) -> None:
    """The status is of the new spec, and the revision that serves is not."""
    spec = replace(SPEC, generation=2, settings={**SPEC.settings, "engine.seed": 1})
    observed = observed_in(deployment(), preflight(), pod("a"), stable=REVISION)
    rejected = None if phase == "Draining" else replace(REJECTED, revision="b" * 8)
    state = RolloutState(
        "Canary", phase, NOW_S, "over", REVISION, rejected and "b" * 8, 1, rejected=rejected
    )
    planned = plan(spec, replace(observed, rollout=state), "image", NOW_S + 1)
    assert planned.rollout.is_settled
    tree = {c.type: c for c in conditions(spec, observed, planned, None)}
    types = ("RolledOut", "Reconciling", "Stalled", "Ready")
    assert {t: (tree[t].status, tree[t].reason) for t in types} == {
        "RolledOut": ("False", "RevisionPending"),
        "Reconciling": ("True", "RevisionPending"),
        "Stalled": ("False", "NotStalled"),
        "Ready": ("True", "Ready"),
    }
    assert revision_of(spec) in tree["Reconciling"].message


def test_a_canary_that_the_spec_has_left_stalls_nothing() -> None:
    spec = replace(SPEC, settings={**SPEC.settings, "engine.seed": 1})
    observed = observed_in(
        deployment("old"), pod("b", "old"), deployment(), preflight(REFUSED, "Failed"),
        phase="Discarding", strategy="Canary", stable="old",
    )  # fmt: skip
    planned = plan(spec, observed, "image", NOW_S + 1)
    tree = {c.type: c for c in conditions(spec, observed, planned, None)}
    assert (planned.rollout.phase, tree["ModelReady"].status) == ("Discarding", "False")
    assert (tree["Stalled"].status, tree["Reconciling"].status) == ("False", "True")


def test_no_replicas_by_the_spec_are_ready_and_answer_nobody() -> None:
    spec = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"), external_replicas=0)
    observed = observed_in(deployment(replicas=0), preflight(), phase="Stable", stable=REVISION)
    tree = {
        c.type: c
        for c in conditions(spec, observed, plan(spec, observed, "image", NOW_S + 1), None)
    }
    assert {t: (tree[t].status, tree[t].reason) for t in ("WorkloadReady", "TrafficAvailable")} == {
        "WorkloadReady": ("True", "ScaledToZero"),
        "TrafficAvailable": ("False", "ScaledToZero"),
    }
    assert (tree["Ready"].status, tree["Ready"].reason) == ("True", "ScaledToZero")
    taken = replace(observed, name_taken_by="older")
    ready = conditions(spec, taken, plan(spec, taken, "image", NOW_S + 1), None)[-1]
    assert (ready.status, ready.reason) == ("False", "ModelNameInUse")


def test_a_forbidden_pod_of_a_file_model_names_the_way_out() -> None:
    refused = 'volume "model" uses restricted volume type "hostPath"'
    told = [
        explain_forbidden(replace(SPEC, model_uri=uri), message)[1]
        for uri, message in (("pvc://m", refused), ("file:///m", refused), ("file:///m", "no CPU"))
    ]
    assert ["a pvc:// URI" in text for text in told] == [False, True, False]
    of_nodes = replace(SPEC, model_uri="hf://a/b", model_cache_type="Node")
    assert "name a claim in spec.model.cache.claimName" in explain_forbidden(of_nodes, refused)[1]
    assert explain_forbidden(SPEC, "no")[0] == "PodForbidden"


@pytest.mark.parametrize("valid", [True, False])
def test_a_new_leader_reads_the_last_decision_from_the_status(valid: bool) -> None:
    """The status is unchanged; otherwise each new leader would write it twice."""
    code = "Active" if valid else "MetricsMissing"
    report = ScalingReport(2, "because", code, valid, "2026-01-01T00:00:00Z", (("want", 2, "n"),))
    planned = plan(SPEC, SERVING, "image", NOW_S)
    status = render(SPEC, SERVING, planned, report, {}, "2026-01-01T00:00:09Z")
    assert ScalingReport.of(status) == report
    assert ScalingReport.of({}) is None
    assert RolloutState.of(status, 0.0) == SERVING.rollout
    assert traffic_of(status) == SERVING.traffic


@pytest.mark.parametrize(("state", "status"), [("Unreadable", "False"), ("Passing", "True")])
def test_metrics_of_a_canary_are_told_until_the_next_rollout(state: str, status: str) -> None:
    metric = {"name": "m", "kind": "Metric", "state": state, "message": "change the query"}
    canary = replace(
        SPEC.rollout.canary, metrics=(MetricGate(name="m", server="http://p", query="up"),)
    )
    spec = replace(SPEC, rollout=replace(SPEC.rollout, canary=canary))
    planned = plan(SPEC, SERVING, "image", NOW_S)
    told = render(spec, SERVING, planned, None, {}, "2026-01-01T00:00:09Z", [], [metric])
    [readable] = [c for c in told["conditions"] if c["type"] == "MetricsReadable"]
    assert readable["status"] == status
    assert ("m: change the query" in readable["message"]) == (status == "False")
    again = render(SPEC, SERVING, planned, None, told, "2026-01-01T00:00:19Z")
    assert again["rollout"]["gates"] == [metric]
    assert RolloutStatus.model_validate(again["rollout"]).gates[0].name == "m"


def test_an_evaluation_is_told_with_its_report() -> None:
    assert SERVING.rollout is not None
    observed = replace(
        SERVING,
        rollout=replace(SERVING.rollout, strategy="Canary", phase="Judging", revision="b" * 8),
        jobs=(ObservedJob("chat-b-evaluation", "u", "b" * 8, "Failed", "deadline exceeded"),),
    )
    planned = plan(SPEC, observed, "image", NOW_S)
    told = render(SPEC, observed, planned, None, {}, "2026-01-01T00:00:09Z")
    assert told["rollout"]["gates"] == [
        {
            "name": "chat-b-evaluation", "kind": "Evaluation", "state": "Failed",
            "message": "deadline exceeded",
        }
    ]  # fmt: skip
